// The split of documents into training and validation.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/documents.h"

namespace train_gpt {

// A pure function of the texts: the same documents every time, evenly spread.
class TrainValSplit {
 public:
  // 0 <= fraction < 1. Counts documents only until there are enough.
  TrainValSplit(double fraction, const std::vector<std::string>& files, const DocumentSettings& settings);

  struct Parts {
    std::string_view train;
    std::string_view validation;
  };
  // The split of document number `index`: all of it on one side or, if there are fewer than 1 / fraction documents, its
  // last part, which begins at a line's start if the text has lines, on the other.
  Parts parts(std::int64_t index, std::string_view text) const;

 private:
  double fraction_;
  bool by_document_ = true;
};

}  // namespace train_gpt

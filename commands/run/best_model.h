// DIR/best: the model of the lowest validation loss of a run. It is neither counted nor removed by --keep.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "commands/run/saving.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"

namespace train_gpt {

class BestModel {
 public:
  // measure: the validation data (validation_measure); losses on other data, or on more of it, are not compared.
  BestModel(std::string output, std::string measure) : output_(std::move(output)), measure_(std::move(measure)) {}

  // Finds the best model of an earlier part of the run. Collective.
  void find(Communicator& world);
  bool is_better(double loss) const { return loss < loss_; }
  // Saves the model after `step` steps, whose loss is now the lowest. `tokenizer` outlives what is returned.
  Saving saving(std::int64_t step, double loss, const std::optional<Tokenizer>& tokenizer);
  std::string folder() const { return folder_in(output_); }

  static std::string folder_in(const std::string& output) { return output + "/best"; }

 private:
  std::string output_;
  std::string measure_;
  double loss_ = std::numeric_limits<double>::infinity();
};

// "4 batches of 32 rows of 256 tokens of val.bin (1000 bytes, checksum ..)", with all files.
std::string validation_measure(const TokenDataset& data, std::int64_t batches, std::int64_t rows);

// The description in DIR/best.
struct BestRecord {
  std::int64_t step = 0;
  double loss = 0;
  std::string measure;
};
// Empty if there is none, or if it is damaged.
std::optional<BestRecord> best_record(const std::string& output);

// For rank 0, when a run goes on at `step`: completes an interrupted write of the folder and, if `goes_back`, sets a
// model of a later step aside. Returns a line about that.
std::optional<std::string> tidy_best(const std::string& output, std::int64_t step, bool goes_back);

}  // namespace train_gpt

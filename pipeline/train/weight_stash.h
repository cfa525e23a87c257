// Weight stashing (pipedream, pipeline/simulate/versions.h): where a rank keeps the newest version of its parameters
// and the D before it. U(i) writes version i+1 where version i-D was.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/train/rank_memory.h"

namespace train_gpt {

class WeightStash {
 public:
  // older: D, of Plan's lines spare_parameters or spare_working_parameters.
  WeightStash(RankMemory& memory, Precision precision, int older);

  struct Place {
    float* values = nullptr;  // null in bf16, where the fp32 master is of the newest alone
    void* low = nullptr;      // what is computed with: in fp32 the values
  };
  int older() const { return static_cast<int>(places_.size()) - 1; }
  std::int64_t newest() const { return newest_; }
  // Of a version from newest - D on, or of the one that the next update makes.
  const Place& place(std::int64_t version) const;
  // What F and B of a micro-batch compute with; counted from the first step.
  const Place& of_micro_batch(std::int64_t micro_batch) const;
  // The next version is there: parameters() are that.
  void advance();
  // What is there has other numbers: the newest is version `newest`.
  void count_from(std::int64_t newest);

 private:
  RankMemory& memory_;
  std::vector<Place> places_;
  std::int64_t newest_ = 0;
  std::int64_t first_ = 0;  // the version for which the first place is
};

}  // namespace train_gpt

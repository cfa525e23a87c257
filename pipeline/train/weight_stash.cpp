#include "pipeline/train/weight_stash.h"

#include <algorithm>

namespace train_gpt {

WeightStash::WeightStash(RankMemory& memory, Precision precision, int older) : memory_(memory) {
  const bool low = precision != Precision::fp32;
  const std::int64_t elements = memory.plan().layout.elements;
  places_.push_back({low ? nullptr : memory.parameters(), memory.working_parameters()});
  for (int k = 0; k < older; ++k) {
    float* const values = low ? nullptr : memory.spare_parameters() + k * elements;
    char* const copy = static_cast<char*>(memory.spare_working_parameters());
    places_.push_back({values, low ? copy + k * elements * element_size(precision) : static_cast<void*>(values)});
  }
}

const WeightStash::Place& WeightStash::place(std::int64_t version) const {
  const auto count = static_cast<std::int64_t>(places_.size());
  return places_[static_cast<std::size_t>(((version - first_) % count + count) % count)];
}

const WeightStash::Place& WeightStash::of_micro_batch(std::int64_t micro_batch) const {
  return place(std::max<std::int64_t>(0, micro_batch - older()));
}

void WeightStash::advance() {
  const Place& next = place(++newest_);
  if (next.values != nullptr) {
    memory_.use_parameters(next.values);
  } else {
    memory_.use_working_parameters(next.low);
  }
}

void WeightStash::count_from(std::int64_t newest) {
  first_ += newest - newest_;
  newest_ = newest;
}

}  // namespace train_gpt

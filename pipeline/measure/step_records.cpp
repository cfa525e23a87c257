#include "pipeline/measure/step_records.h"

#include <algorithm>
#include <stdexcept>

namespace train_gpt {

StepRecords::StepRecords(std::size_t actions, std::size_t lowered, std::size_t steps)
    : record_size_(record_size(actions, lowered)), numbers_(record_size_ * steps) {}

void StepRecords::keep(std::int64_t step, Device& device, const Trainer& trainer) {
  const std::vector<ActionMarks>& actions = trainer.last_step_marks();
  const std::vector<LoweredMarks>& lowered = trainer.lowered_marks();
  if (record_size(actions.size(), lowered.size()) != record_size_) {
    throw std::logic_error("a step of " + std::to_string(actions.size()) + " actions does not fit its record");
  }
  std::size_t at = kept_ % (numbers_.size() / record_size_) * record_size_;
  numbers_[at++] = static_cast<double>(step);
  const auto put = [&](Device::Mark mark) { numbers_[at++] = device.time_ms(mark) - trainer.clock_ahead(); };
  for (const ActionMarks& marks : actions) {
    put(marks.wait_begin);
    put(marks.begin);
    put(marks.end);
  }
  for (const LoweredMarks& marks : lowered) {
    put(marks.issued);
    put(marks.begin);
    put(marks.end);
  }
  ++kept_;
}

std::span<const double> StepRecords::numbers() const {
  return std::span<const double>(numbers_).first(std::min(kept_ * record_size_, numbers_.size()));
}

}  // namespace train_gpt

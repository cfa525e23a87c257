// Measurements of this rank's last steps: a bounded number, allocated before the first step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "pipeline/train/executor.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

class StepRecords {
 public:
  // Room for `steps` steps of `actions` actions and `lowered` R and U.
  StepRecords(std::size_t actions, std::size_t lowered, std::size_t steps);

  // Copies the times of the trainer's last step, on the clock of rank 0, over the oldest step's.
  void keep(std::int64_t step, Device& device, const Trainer& trainer);

  // One record after the other, in no particular order; each is the step's number, then three times per action (wait
  // begins, action begins, ends), then three per lowered action (issued, begins, ends), in milliseconds of rank 0's
  // clock.
  std::span<const double> numbers() const;
  static std::size_t record_size(std::size_t actions, std::size_t lowered) { return 1 + 3 * (actions + lowered); }

 private:
  std::size_t record_size_;
  std::vector<double> numbers_;
  std::size_t kept_ = 0;  // in all
};

}  // namespace train_gpt

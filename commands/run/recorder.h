// Writes records.bin of a run (pipeline/measure/records_file.h): every rank keeps the times of its actions, and every
// few steps rank 0 collects and writes those of all ranks.
#pragma once

#include <memory>
#include <vector>

#include "commands/run/training_run.h"
#include "pipeline/measure/records_file.h"

namespace train_gpt {

class Recorder {
 public:
  explicit Recorder(TrainingRun& run);  // allocates all that it will need; outlived by `run`

  bool records() const { return !buffer_.empty(); }
  // After a step.
  void keep(std::int64_t step, double ms);
  // Before a step; collective: hands the kept times to rank 0 if there are many.
  void hand_on_if_much();
  void hand_on();

 private:
  static constexpr int kStepsTogether = 16;
  void write(const std::vector<std::vector<char>>& parcels, int steps);

  TrainingRun& run_;
  std::vector<double> input_share_;    // of a B's time, [position]
  std::vector<std::int64_t> numbers_;  // of every rank of the job
  std::vector<char> buffer_;           // room for kStepsTogether steps of this rank
  std::size_t filled_ = 0;
  int kept_ = 0;
  std::unique_ptr<RecordsWriter> writer_;  // on rank 0
};

// How many numbers a rank records per step: begin and end of every action of its list and, for a B, the moment between
// I and W before its end.
std::int64_t recorded_numbers(const std::vector<Action>& list);

}  // namespace train_gpt

// records.bin: the times of every step of a run on every rank, in a few bytes per action, for later questions
// (`train_gpt whatif`). The file has its full size from the start of the run; when it is full, new steps replace the
// oldest.
//
//   "tgptrec1", u64 bytes of the header, u64 ranks, u64 numbers of each rank, the header (text), then slots of equal
//   size: i64 step (-1: none yet), f64 ms of the whole step; for each rank f64 ms on the clock of rank 0, and its
//   numbers as f32, ms after that
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace train_gpt {

struct StepRecord {
  std::int64_t step = 0;
  double ms = 0;  // from the step's start to the end of its update, on rank 0
  struct Rank {
    double base = 0;             // ms on the clock of rank 0
    std::vector<float> numbers;  // ms after that
  };
  std::vector<Rank> ranks;  // of the job
};

class RecordsWriter {
 public:
  // numbers: how many each rank has per step. Keeps as many steps as fit into `bytes`, at least one. Throws
  // std::runtime_error naming the file.
  RecordsWriter(const std::string& path, const std::string& header, const std::vector<std::int64_t>& numbers,
                std::int64_t most_bytes);
  void write(const StepRecord& record);
  void flush();

  std::int64_t steps_that_fit() const { return slots_; }
  std::int64_t bytes_per_step() const { return slot_bytes_; }

 private:
  std::string path_;
  std::ofstream file_;
  std::int64_t first_ = 0, slots_ = 1, slot_bytes_ = 0, written_ = 0;
};

struct Records {
  std::string header;
  std::vector<StepRecord> steps;  // in order
};

// Throws std::invalid_argument naming the file and what is wrong with it.
Records read_records(const std::string& path);

}  // namespace train_gpt

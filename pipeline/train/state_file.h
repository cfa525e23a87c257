// One small memory-mapped file per rank in the output directory: what the rank is doing and when it last moved. It
// outlives the process, so that after a crash `train_gpt status DIR` shows where each rank was; and the ranks of one
// host read each other's files, so that those who wait for a stalled or failed rank notice it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace train_gpt {

struct RankState {
  int rank = 0;
  int ranks = 1;
  std::int64_t process = 0;
  std::string host;
  std::int64_t step = -1;  // -1: before the first
  std::string doing;       // "waiting for the activation of micro-batch 3 from rank 0, to run 2F3"
  double beat = 0;         // CLOCK_MONOTONIC seconds of the last sign of life
  std::string failure;     // why the rank gave up; empty: it did not
  bool finished = false;
  bool stepping = false;  // inside a step or a validation, where signs of life come every few milliseconds
};

// Creates or replaces this rank's file. Rank 0 removes the files of ranks that only an earlier run had.
class StateFile {
 public:
  // Throws std::runtime_error naming the file, also when the disk is full.
  StateFile(const std::string& directory, int rank, int ranks);
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  void set_step(std::int64_t step);
  void set_doing(const std::string& text);
  void beat();  // cheap: one store
  void fail(const std::string& why);
  void finish();
  void set_stepping(bool stepping);

  struct Block;  // the layout on disk

 private:
  Block* block_ = nullptr;
};

// Reads the state of one rank, or of all ranks in a directory (sorted by rank). Ranks without a (complete) file are
// left out.
std::unique_ptr<RankState> read_state(const std::string& directory, int rank);
std::vector<RankState> read_states(const std::string& directory);

// True if the rank's process ran on this host and has vanished without having finished or failed.
bool is_gone(const RankState& state);

// The time on this host, on the clock of RankState::beat.
double monotonic_seconds();
std::string host_name();

}  // namespace train_gpt

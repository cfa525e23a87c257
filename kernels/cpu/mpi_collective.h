// Reduce-scatter and all-gather as point-to-point messages, so that sums have one order (sum_of_ranks.h) on every MPI
// library and progress while a stage computes. An all-reduce is one after the other.
//
// Reduce-scatter works in rounds: in each, every rank sends a slice of each peer's piece and receives the peers' slices
// of its own piece into staging, then adds them. Bytes sent per rank: (n-1)/n of the buffer, as in a ring.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "kernels/communicator.h"

namespace train_gpt {

class MpiCollective {
 public:
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather };

  // Nothing happens before the first advance(). `staging` holds staging_elements(ranks) floats and serves one
  // collective at a time. `tag` is the same on all ranks and unused by other operations in flight.
  // Rank r has the piece [cuts[r], cuts[r + 1]).
  MpiCollective(MPI_Comm comm, int tag, Kind kind, float* data, std::vector<std::int64_t> cuts, float* staging);

  // Moves on as far as possible without waiting; true when finished.
  bool advance();

  static std::int64_t staging_elements(int ranks);

 private:
  void post_reduce_round();
  void add_round();
  void post_gather();

  Communicator::Piece piece(int owner) const {
    return {cuts_[static_cast<std::size_t>(owner)], cuts_[static_cast<std::size_t>(owner) + 1]};
  }
  Communicator::Piece slice(int owner) const;  // the current round's range of a rank's piece

  MPI_Comm comm_;
  int tag_;
  Kind kind_;
  float* data_;
  std::vector<std::int64_t> cuts_;
  float* staging_;
  int rank_ = 0;
  int size_ = 1;
  bool started_ = false;
  bool gathering_ = false;
  std::int64_t round_ = 0;
  std::int64_t rounds_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<float*> parts_;  // of one round's sum, by rank
};

// Throws std::runtime_error with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* what);

}  // namespace train_gpt

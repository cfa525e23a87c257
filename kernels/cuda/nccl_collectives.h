// Sums over ranks, in the order of kernels/sum_of_ranks.h whatever NCCL's algorithms do, so that results are
// reproducible and equal on all ranks bit for bit. Two ranks use ncclAllReduce: a sum of two has only one order. More
// exchange slices of their pieces by ncclSend and ncclRecv and add them with a kernel of ours; (n-1)/n of the buffer
// travels per rank and phase, as in a ring.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/cuda/nccl_link.h"

namespace train_gpt::cuda {

class NcclCollectives {
 public:
  // Allocates the staging memory. The link outlives this object.
  NcclCollectives(NcclLink& link, int rank, int size);
  ~NcclCollectives();
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  // As Communicator's, on the link's stream.
  void all_reduce(float* data, std::int64_t count);
  void reduce_scatter(float* data, std::span<const std::int64_t> cuts);
  void all_gather(float* data, std::span<const std::int64_t> cuts);

  // Uses every connection once, so that NCCL makes them now and not within the first step; collective. Returns when
  // everything is enqueued.
  void connect();

 private:
  void reduce_round(float* data, std::span<const std::int64_t> cuts, std::int64_t round);

  static constexpr std::int64_t kSliceElements = std::int64_t{1} << 19;  // per peer and round: 2 MiB

  NcclLink& link_;
  int rank_;
  int size_;
  std::vector<std::int64_t> cuts_;  // of an all-reduce
  float* staging_ = nullptr;        // (size, kSliceElements): the peers' slices of this rank's piece
};

}  // namespace train_gpt::cuda

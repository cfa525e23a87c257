// One NCCL communicator and the stream that its operations run on.
#pragma once

#include <nccl.h>

#include <string>

#include "kernels/cuda/side_stream.h"

namespace train_gpt::cuda {

class NcclLink {
 public:
  // Collective over the `size` ranks that name the same id: returns when all are there. `name` is for messages:
  // "channel 2 (rank 0 to rank 1)". At most `largest_ctas` blocks of a kernel, because a blocked operation holds its
  // multiprocessors.
  NcclLink(const ncclUniqueId& id, int rank, int size, int largest_ctas, cudaStream_t compute, std::string name);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  ncclComm_t communicator() const { return communicator_; }
  SideStream& side() { return side_; }
  cudaStream_t stream() const { return side_.stream(); }
  const std::string& name() const { return name_; }

  // Throws std::runtime_error naming this link and NCCL's text once an operation has failed.
  void check_failure() const;

 private:
  SideStream side_;
  ncclComm_t communicator_ = nullptr;
  std::string name_;
};

void check(ncclResult_t result, ncclComm_t communicator, const std::string& what);

}  // namespace train_gpt::cuda

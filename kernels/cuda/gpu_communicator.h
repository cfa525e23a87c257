// Chooses how the ranks of a job that compute on GPUs talk to each other.
#pragma once

#include <memory>
#include <string>

#include "kernels/communicator.h"
#include "kernels/device.h"

namespace train_gpt {

// True for a device of make_cuda_device.
bool is_cuda(const Device& device);

struct GpuCommunicator {
  std::unique_ptr<Communicator> communicator;
  int gpus = 1;        // different ones that the ranks use
  int most_ranks = 1;  // on one of them
  std::string notice;  // one line for people; empty where there is nothing to say
};

// NCCL where every rank of `host` has a GPU of its own, else staging through `host`. Collective; takes over `host`. The
// device, of make_cuda_device, outlives the communicator.
GpuCommunicator make_gpu_communicator(std::unique_ptr<Communicator> host, const Device& device);

// Throws std::invalid_argument when `ranks_here` ranks of this host cannot share its `gpus` GPUs: a GPU in an exclusive
// compute mode admits one process.
void check_gpus_can_be_shared(int ranks_here, int gpus);

}  // namespace train_gpt

// The part of a GPU's memory that a plan may take.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/device.h"

namespace train_gpt {

// CUDA allocates memory for itself and its libraries, and says how much only afterwards. The context and the program's
// own kernels are loaded when this is asked (their memory is free no more); the rest is an upper estimate, which
// scripts/gpu_check.sh compares with a card.
struct GpuMemory {
  std::int64_t total = 0;                       // bytes, of the current GPU
  std::int64_t free = 0;                        // of this rank's share, without what is in use now: the context
  std::int64_t code = std::int64_t{256} << 20;  // of cuBLASLt's algorithms, loaded when they first run
  std::int64_t messages = 0;                    // NCCL's buffers, and those of its sums

  std::int64_t for_plan() const { return free - code - messages; }
  std::string describe() const;  // one line for people
};

// `ranks`: of the job. `ranks_on_gpu`: that share this rank's GPU.
GpuMemory gpu_memory(int ranks, int ranks_on_gpu);

// Device::workspace_bytes of the cuda device, for plans that are made where there is none.
std::int64_t cuda_workspace_bytes(Precision precision, std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH);

}  // namespace train_gpt

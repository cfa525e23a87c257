#include "kernels/cuda/gpu_memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>

#include "kernels/cuda/check.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/operation_parts.h"

namespace train_gpt {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Per connection and CTA NCCL keeps a buffer of each of its protocols (4 MiB, 4.5 MiB, 0.5 MiB) and some state: eight
// ends of channels with one CTA, and three communicators of sums with four.
constexpr std::int64_t kConnection = 10 * kMiB;
constexpr std::int64_t kMessages = (8 + 3 * 4) * kConnection;
constexpr std::int64_t kSlice = 2 * kMiB;  // of sums over ranks, per rank

std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

GpuMemory gpu_memory(int ranks, int ranks_on_gpu) {
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  GpuMemory memory;
  memory.total = static_cast<std::int64_t>(total);
  memory.free = static_cast<std::int64_t>(free) / ranks_on_gpu;
  if (ranks > 1 && ranks_on_gpu == 1) memory.messages = kMessages + 3 * kSlice * ranks;
  return memory;
}

std::string GpuMemory::describe() const {
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  char text[256];
  std::snprintf(text, sizeof text,
                "GPU memory: %.1f GiB, free for this rank %.1f GiB, less %.2f GiB for cuBLASLt's code and %.2f GiB for "
                "NCCL's buffers (estimates): %.1f GiB for the plan",
                gib(total), gib(free), gib(code), gib(messages), gib(for_plan()));
  return text;
}

// cuBLASLt's part, then that of the operation that runs. The largest in a layer is the copy of the MLP's
// pre-activations.
std::int64_t cuda_workspace_bytes(Precision precision, std::int64_t B, std::int64_t T, std::int64_t C,
                                  std::int64_t NH) {
  const std::int64_t N = B * T;
  return cuda::MatrixProducts::kWorkspaceBytes +
         std::max({aligned(N * 4 * C * element_size(precision)), aligned(cuda::bias_backward_scratch_bytes(N, 4 * C)),
                   aligned(cuda::embedding_backward_scratch_bytes(N, C)),
                   aligned(cuda::layernorm_backward_weight_scratch_bytes(N, C)),
                   aligned(cuda::attention_backward_scratch_bytes(precision, B, T, C, NH))});
}

}  // namespace train_gpt

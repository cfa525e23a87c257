// Embedding: out[n] = wte[token[n]] + wpe[n mod T], and its gradient.
//
//   forward          reads 2, writes 1 element per output element: 3 e N C bytes (e = bytes of an element), N C FLOPs.
//                    Bound by memory: N = 8192, C = 768, bf16 is 38 MB: 11 us on an H100 (3.35 TB/s), 8 us on an H200
//                    (4.8 TB/s), 19 us on an A100 (2.0 TB/s).
//   backward, wte    positions come in stretches of 128. First, one block per position: that of a token's first
//                    occurrence in its stretch adds the rows of all of them, where there are several. Then, one block
//                    per position: that of a token's very first occurrence adds to dwte, stretch by stretch, the row or
//                    the sum. So no block adds more than 128 + N / 128 rows, whatever the tokens are (bytes, of which
//                    one may be a fifth of all), in an order fixed by them: no atomics, no sort. Finding the
//                    occurrences reads N^2 / 2 tokens from L1 (4 N bytes that stay there), below the time of the rows
//                    for N <= 32768; the rows are (e + 8) N C bytes, N C FLOPs. In the example 63 MB: 19 us on an H100,
//                    13 us on an H200, 31 us on an A100.
//   backward, wpe    one block per position t adds over the batch in order: e N C + 8 T C bytes, N C FLOPs. In the
//                    example, with T = 1024, 19 MB: 6 us on an H100, 4 us on an H200, 9 us on an A100.
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/operation_parts.h"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

// One warp per position.
template <typename Float, int kWidth>
__global__ void __launch_bounds__(kThreads)
    embedding_forward_kernel(Float* out, const std::int32_t* tokens, const Float* wte, const Float* wpe, std::int64_t N,
                             std::int64_t T, std::int64_t C) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (n >= N) return;
  const Float* token = wte + tokens[n] * C;
  const Float* position = wpe + n % T * C;
  for (std::int64_t c = threadIdx.x % kWarp * kWidth; c < C; c += kWarp * kWidth) {
    float x[kWidth], y[kWidth];
    load<kWidth>(x, token + c);
    load<kWidth>(y, position + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x[i] += y[i];
    store<kWidth>(out + n * C + c, x);
  }
}

// Which of the kThreads positions of a stretch hold a token, one bit each.
using Occurrences = unsigned[kWarps];

// Called by the whole block; a barrier must follow before the result is read.
__device__ __forceinline__ void find(Occurrences& occurrences, std::int32_t token, const std::int32_t* tokens,
                                     std::int64_t stretch, std::int64_t N) {
  const std::int64_t mine = stretch + threadIdx.x;
  const unsigned found = __ballot_sync(kAllLanes, mine < N && tokens[mine] == token);
  if (threadIdx.x % kWarp == 0) occurrences[threadIdx.x / kWarp] = found;
}

struct Found {
  int count = 0;
  int first = 0;  // where in the stretch
};
__device__ __forceinline__ Found summary(const Occurrences& occurrences) {
  Found result;
#pragma unroll
  for (int warp = kWarps - 1; warp >= 0; --warp) {
    const unsigned bits = occurrences[warp];
    result.count += __popc(bits);
    if (bits != 0) result.first = warp * kWarp + __ffs(static_cast<int>(bits)) - 1;
  }
  return result;
}

__device__ __forceinline__ std::int64_t stretch_of(std::int64_t position) { return position / kThreads * kThreads; }

// sums[n] = the sum of dout's rows over all occurrences of a token in a stretch, the first of which is n. A single
// occurrence needs no sum: its row of dout serves.
template <typename Float, int kWidth>
__global__ void __launch_bounds__(kThreads)
    embedding_stretch_backward_kernel(float* sums, const Float* dout, const std::int32_t* tokens, std::int64_t N,
                                      std::int64_t C) {
  __shared__ Occurrences occurrences;
  const std::int64_t n = blockIdx.x, stretch = stretch_of(n);
  find(occurrences, tokens[n], tokens, stretch, N);
  __syncthreads();
  const Found found = summary(occurrences);
  if (found.count == 1 || stretch + found.first != n) return;
  for (std::int64_t c = threadIdx.x * kWidth; c < C; c += kThreads * kWidth) {
    float sum[kWidth] = {};
    for (int warp = 0; warp < kWarps; ++warp) {
      for (unsigned rest = occurrences[warp]; rest != 0; rest &= rest - 1) {
        const std::int64_t row = stretch + warp * kWarp + __ffs(static_cast<int>(rest)) - 1;
        float x[kWidth];
        load<kWidth>(x, dout + row * C + c);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum[i] += x[i];
      }
    }
    store<kWidth>(sums + n * C + c, sum);
  }
}

template <typename Float, int kWidth>
__global__ void __launch_bounds__(kThreads)
    embedding_token_backward_kernel(float* dwte, const float* sums, const Float* dout, const std::int32_t* tokens,
                                    std::int64_t N, std::int64_t C) {
  __shared__ Occurrences occurrences[2];  // two, so that one barrier is enough
  const std::int64_t n = blockIdx.x;
  const std::int32_t token = tokens[n];
  bool earlier = false;
  for (std::int64_t i = threadIdx.x; i < n && !earlier; i += kThreads) earlier = tokens[i] == token;
  if (__syncthreads_or(earlier)) return;

  int now = 0;
  for (std::int64_t stretch = stretch_of(n); stretch < N; stretch += kThreads, now ^= 1) {
    find(occurrences[now], token, tokens, stretch, N);
    __syncthreads();
    const Found found = summary(occurrences[now]);
    if (found.count == 0) continue;
    const std::int64_t row = stretch + found.first;
    for (std::int64_t c = threadIdx.x * kWidth; c < C; c += kThreads * kWidth) {
      float sum[kWidth], x[kWidth];
      load<kWidth>(sum, dwte + token * C + c);
      if (found.count == 1) {
        load<kWidth>(x, dout + row * C + c);
      } else {
        load<kWidth>(x, sums + row * C + c);
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += x[i];
      store<kWidth>(dwte + token * C + c, sum);
    }
  }
}

template <typename Float, int kWidth>
__global__ void __launch_bounds__(kThreads)
    embedding_position_backward_kernel(float* dwpe, const Float* dout, std::int64_t B, std::int64_t T, std::int64_t C) {
  const std::int64_t t = blockIdx.x;
  for (std::int64_t c = threadIdx.x * kWidth; c < C; c += kThreads * kWidth) {
    float sum[kWidth];
    load<kWidth>(sum, dwpe + t * C + c);
    for (std::int64_t b = 0; b < B; ++b) {
      float x[kWidth];
      load<kWidth>(x, dout + (b * T + t) * C + c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += x[i];
    }
    store<kWidth>(dwpe + t * C + c, sum);
  }
}

template <typename Float, int kWidth>
void backward(float* dwte, float* dwpe, float* sums, const Float* dout, const std::int32_t* tokens, std::int64_t B,
              std::int64_t T, std::int64_t C, cudaStream_t stream) {
  embedding_stretch_backward_kernel<Float, kWidth>
      <<<static_cast<unsigned>(B * T), kThreads, 0, stream>>>(sums, dout, tokens, B * T, C);
  CUDA_CHECK(cudaGetLastError());
  embedding_token_backward_kernel<Float, kWidth>
      <<<static_cast<unsigned>(B * T), kThreads, 0, stream>>>(dwte, sums, dout, tokens, B * T, C);
  CUDA_CHECK(cudaGetLastError());
  embedding_position_backward_kernel<Float, kWidth>
      <<<static_cast<unsigned>(T), kThreads, 0, stream>>>(dwpe, dout, B, T, C);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

std::int64_t embedding_backward_scratch_bytes(std::int64_t N, std::int64_t C) {
  return N * C * static_cast<std::int64_t>(sizeof(float));
}

template <typename Float>
void CudaDevice<Float>::embedding_forward(void* out, const std::int32_t* tokens, const void* wte, const void* wpe,
                                          std::int64_t B, std::int64_t T, std::int64_t C) {
  constexpr int kWidth = kWide<Float>;
  const unsigned blocks = blocks_for(B * T, kWarps);
  if (C % kWidth == 0) {
    embedding_forward_kernel<Float, kWidth>
        <<<blocks, kThreads, 0, stream_>>>(low(out), tokens, low(wte), low(wpe), B * T, T, C);
  } else {
    embedding_forward_kernel<Float, 1>
        <<<blocks, kThreads, 0, stream_>>>(low(out), tokens, low(wte), low(wpe), B * T, T, C);
  }
  CUDA_CHECK(cudaGetLastError());
  progress();
}

template <typename Float>
void CudaDevice<Float>::embedding_backward(float* dwte, float* dwpe, const void* dout, const std::int32_t* tokens,
                                           std::int64_t B, std::int64_t T, std::int64_t C) {
  constexpr int kWidth = kWide<Float>;
  float* sums = scratch_of(embedding_backward_scratch_bytes(B * T, C));
  if (C % kWidth == 0) {
    backward<Float, kWidth>(dwte, dwpe, sums, low(dout), tokens, B, T, C, stream_);
  } else {
    backward<Float, 1>(dwte, dwpe, sums, low(dout), tokens, B, T, C, stream_);
  }
  progress();
}

TRAIN_GPT_FOR_FLOAT_AND_BF16(embedding_forward)
TRAIN_GPT_FOR_FLOAT_AND_BF16(embedding_backward)

}  // namespace train_gpt::cuda

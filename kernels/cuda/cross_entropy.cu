// Softmax cross-entropy, one shard of the classifier at a time: what happens to the scores between the matrix products
// (model/unit_head.h has the algebra). One block per row of at most 2048 columns.
//
// Bytes per element of a shard: fold_scores reads its score twice (once from L2) and writes e; score_gradients reads
// and writes e. FLOPs: ~8 per element. Bound by memory: over the 50304 columns of 8192 rows in bf16, fold_scores moves
// 2.5 GB and score_gradients 1.6: 0.75 and 0.49 ms on an H100, 0.51 and 0.34 ms on an H200, 1.22 and 0.81 ms on an
// A100.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // columns of one access

// exp(x - y) where both may be infinite (then 1).
__device__ __forceinline__ float ratio(float x, float y) { return x == y ? 1.0F : expf(x - y); }

// The target's column in the shard; -1: it is in another one, or there is none.
__device__ __forceinline__ int column_of(std::int32_t target, int begin, int columns) {
  return target >= begin && target < begin + columns ? target - begin : -1;
}

__device__ float block_max(float x, float (&partial)[kWarp]) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  x = warp_max(x);
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  return warp_max(lane < kThreads / kWarp ? partial[lane] : -INFINITY);
}

// e = exp(x - largest) of this thread's columns, padding 0; returns their sum.
template <typename Float>
__device__ float exponentiate(Float* e, const float* x, float largest, int columns, int width) {
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x) * kWidth; c < width; c += kThreads * kWidth) {
    float pack[kWidth];
    load<kWidth>(pack, x + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      pack[i] = c + i < columns ? ratio(pack[i], largest) : 0.0F;
      sum += pack[i];
    }
    if (e != nullptr) store<kWidth>(e + c, pack);
  }
  return sum;
}

template <typename Float>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(SoftmaxFold fold, Float* exponentials, float* largest_then, const float* scores,
                const std::int32_t* targets, int begin, int columns, int width, bool first, int C) {
  __shared__ float maxima[kWarp];
  __shared__ float sums[kWarp];
  const std::int64_t row = blockIdx.x;
  const float* x = scores + row * width;
  const int target = column_of(targets[row], begin, columns);
  const float at_target = target >= 0 ? x[target] : 0.0F;  // before anybody writes: a barrier lies in between
  float mine = -INFINITY;
  for (int c = static_cast<int>(threadIdx.x) * kWidth; c < columns; c += kThreads * kWidth) {
    float pack[kWidth];
    load<kWidth>(pack, x + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (c + i < columns) mine = fmaxf(mine, pack[i]);
    }
  }
  const float in_shard = block_max(mine, maxima);
  const float before = first ? in_shard : fold.largest[row];
  const float largest = fmaxf(before, in_shard);
  Float* e = exponentials == nullptr ? nullptr : exponentials + row * width;
  const float sum = block_sum(exponentiate(e, x, largest, columns, width), sums);
  const float change = ratio(before, largest);
  if (!first && change != 1.0F && fold.mixture != nullptr) {
    float* mixture = fold.mixture + row * C;
    for (int c = static_cast<int>(threadIdx.x); c < C; c += kThreads) mixture[c] *= change;
  }
  // All have read the row's state: block_sum's barrier lies in between.
  if (threadIdx.x != 0) return;
  fold.sum[row] = first ? sum : fmaf(fold.sum[row], change, sum);
  fold.largest[row] = largest;
  if (target >= 0)
    fold.at_target[row] = at_target;
  else if (first)
    fold.at_target[row] = 0;
  if (largest_then != nullptr) largest_then[row] = largest;
}

template <typename Float>
__global__ void __launch_bounds__(kThreads)
    exponentials_kernel(Float* exponentials, const float* scores, const float* largest_then, int columns, int width) {
  const std::int64_t row = blockIdx.x;
  exponentiate(exponentials + row * width, scores + row * width, largest_then[row], columns, width);
}

__global__ void __launch_bounds__(kThreads)
    finish_kernel(float* losses, SoftmaxFold fold, const std::int32_t* targets, float dloss, int C) {
  const std::int64_t row = blockIdx.x;
  const bool valid = targets[row] >= 0;
  const float sum = fold.sum[row];
  if (threadIdx.x == 0) losses[row] = valid ? logf(sum) + (fold.largest[row] - fold.at_target[row]) : 0.0F;
  if (fold.mixture == nullptr) return;
  float* mixture = fold.mixture + row * C;
  const float scale = dloss / sum;
  for (int c = static_cast<int>(threadIdx.x); c < C; c += kThreads) mixture[c] = valid ? mixture[c] * scale : 0.0F;
}

template <typename Float>
__global__ void __launch_bounds__(kThreads)
    subtract_kernel(float* din, const Float* weight, const std::int32_t* targets, float dloss, int begin, int columns,
                    int C) {
  const std::int64_t row = blockIdx.x;
  const int target = column_of(targets[row], begin, columns);
  if (target < 0) return;
  const Float* from = weight + std::int64_t{target} * C;
  float* out = din + row * C;
  for (int c = static_cast<int>(threadIdx.x); c < C; c += kThreads) out[c] = fmaf(-dloss, as_float(from[c]), out[c]);
}

template <typename Float>
__global__ void __launch_bounds__(kThreads)
    score_gradients_kernel(Float* dscores, const Float* exponentials, const float* largest_then, const float* largest,
                           const float* sum, const std::int32_t* targets, float dloss, int begin, int columns,
                           int width) {
  const std::int64_t row = blockIdx.x;
  const bool valid = targets[row] >= 0;
  const int target = column_of(targets[row], begin, columns);
  const float factor = ratio(largest_then[row], largest[row]) * dloss / sum[row];
  for (int c = static_cast<int>(threadIdx.x) * kWidth; c < width; c += kThreads * kWidth) {
    float pack[kWidth];
    load<kWidth>(pack, exponentials + row * width + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      pack[i] = valid ? pack[i] * factor : 0.0F;
      if (c + i == target) pack[i] -= dloss;
    }
    store<kWidth>(dscores + row * width + c, pack);
  }
}

}  // namespace

// scores^T (OC,N) = weight (C,OC)^T in (C,N), in fp32
template <typename Float>
void CudaDevice<Float>::shard_scores(float* scores, const void* in, const void* weight, std::int64_t N, std::int64_t C,
                                     std::int64_t OC) {
  products_.run({CUBLAS_OP_T, CUBLAS_OP_N, OC, N, C, CUBLASLT_EPILOGUE_DEFAULT, true},
                {.a = weight, .b = in, .d = scores}, stream_);
  progress();
}

// mixture^T (C,N) += weight (C,OC) in (OC,N), in fp32
template <typename Float>
void CudaDevice<Float>::shard_mixture(float* mixture, const void* in, const void* weight, bool first, std::int64_t N,
                                      std::int64_t C, std::int64_t OC) {
  products_.run({CUBLAS_OP_N, CUBLAS_OP_N, C, N, OC, CUBLASLT_EPILOGUE_DEFAULT, true},
                {.a = weight, .b = in, .c = first ? nullptr : mixture, .d = mixture}, stream_);
  progress();
}

template <typename Float>
void CudaDevice<Float>::fold_scores(const SoftmaxFold& fold, void* exponentials, float* largest_then,
                                    const float* scores, const std::int32_t* targets, const VocabularyShard& shard,
                                    bool first, std::int64_t rows, std::int64_t C) {
  fold_kernel<Float><<<static_cast<unsigned>(rows), kThreads, 0, stream_>>>(
      fold, low(exponentials), largest_then, scores, targets, static_cast<int>(shard.begin),
      static_cast<int>(shard.columns), static_cast<int>(shard.width), first, static_cast<int>(C));
  CUDA_CHECK(cudaGetLastError());
  progress();
}

template <typename Float>
void CudaDevice<Float>::score_exponentials(void* exponentials, const float* scores, const float* largest_then,
                                           const VocabularyShard& shard, std::int64_t rows) {
  exponentials_kernel<Float><<<static_cast<unsigned>(rows), kThreads, 0, stream_>>>(
      low(exponentials), scores, largest_then, static_cast<int>(shard.columns), static_cast<int>(shard.width));
  CUDA_CHECK(cudaGetLastError());
  progress();
}

template <typename Float>
void CudaDevice<Float>::finish_cross_entropy(float* losses, const SoftmaxFold& fold, const std::int32_t* targets,
                                             float dloss, std::int64_t rows, std::int64_t C) {
  finish_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream_>>>(losses, fold, targets, dloss,
                                                                       static_cast<int>(C));
  CUDA_CHECK(cudaGetLastError());
  progress();
}

template <typename Float>
void CudaDevice<Float>::subtract_targets(float* din, const void* weight, const std::int32_t* targets, float dloss,
                                         const VocabularyShard& shard, std::int64_t rows, std::int64_t C) {
  subtract_kernel<Float><<<static_cast<unsigned>(rows), kThreads, 0, stream_>>>(
      din, low(weight), targets, dloss, static_cast<int>(shard.begin), static_cast<int>(shard.columns),
      static_cast<int>(C));
  CUDA_CHECK(cudaGetLastError());
  progress();
}

template <typename Float>
void CudaDevice<Float>::score_gradients(void* dscores, const void* exponentials, const float* largest_then,
                                        const float* largest, const float* sum, const std::int32_t* targets,
                                        float dloss, const VocabularyShard& shard, std::int64_t rows) {
  score_gradients_kernel<Float><<<static_cast<unsigned>(rows), kThreads, 0, stream_>>>(
      low(dscores), low(exponentials), largest_then, largest, sum, targets, dloss, static_cast<int>(shard.begin),
      static_cast<int>(shard.columns), static_cast<int>(shard.width));
  CUDA_CHECK(cudaGetLastError());
  progress();
}

TRAIN_GPT_FOR_FLOAT_AND_BF16(shard_scores)
TRAIN_GPT_FOR_FLOAT_AND_BF16(shard_mixture)
TRAIN_GPT_FOR_FLOAT_AND_BF16(fold_scores)
TRAIN_GPT_FOR_FLOAT_AND_BF16(score_exponentials)
TRAIN_GPT_FOR_FLOAT_AND_BF16(finish_cross_entropy)
TRAIN_GPT_FOR_FLOAT_AND_BF16(subtract_targets)
TRAIN_GPT_FOR_FLOAT_AND_BF16(score_gradients)

}  // namespace train_gpt::cuda

// The elementwise parts of Muon (model/muon.h); its products are cuBLASLt's.
//
// Bytes per element of a matrix and step: sums 8, direction 8 and 2 in bf16, average 12, update 8 and 4 in bf16; each
// of the five iterations adds 6 for the matrix and 12 for the squares of its shorter side. All bound by memory, and
// small beside the products: 20 r^2 c + 10 r^3 FLOPs for r <= c.
//
// Every fused multiply-add is named (the files are compiled with --fmad=false): all operations have the same M' and G'.
#include <initializer_list>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kThreads = 512;  // of a block that sums an atom
constexpr int kWidth = kWide<float>;

__device__ __forceinline__ float averaged(float average, float gradient, float momentum) {
  return fmaf(momentum, average, (1.0F - momentum) * gradient);
}
__device__ __forceinline__ float followed(float average, float gradient, float momentum) {
  return averaged(averaged(average, gradient, momentum), gradient, momentum);
}

// Element by element, since a matrix may begin anywhere.
__global__ void __launch_bounds__(kThreads) muon_sums_kernel(double* sums, AveragedGradient from, std::int64_t n) {
  __shared__ double partial[kWarp];
  const std::int64_t begin = blockIdx.x * kAtomElements;
  const std::int64_t end = n - begin < kAtomElements ? n : begin + kAtomElements;
  const float scale = from.scalars->gradient_scale;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const auto x = static_cast<double>(followed(from.average[i], from.gradient[i] * scale, from.momentum));
    sum = fma(x, x, sum);
  }
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Each block adds the sums of all atoms, a few hundred at most, by itself.
template <typename Float>
__global__ void __launch_bounds__(kThreads)
    muon_direction_kernel(Float* out, AveragedGradient from, const double* sums, std::int64_t n) {
  __shared__ double partial[kWarp];
  double total = 0;
  for (std::int64_t a = threadIdx.x; a * kAtomElements < n; a += kThreads) total += sums[a];
  const auto norm = static_cast<float>(sqrt(block_sum(total, partial)) + 1e-7);
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const float gradient = from.gradient[i] * from.scalars->gradient_scale;
  out[i] = rounded<Float>(followed(from.average[i], gradient, from.momentum) / norm);
}

template <int Width>
struct Average {
  static constexpr int kWidth = Width;

  float* average;
  const float* gradient;
  const AdamWScalars* scalars;
  float momentum;

  __device__ void operator()(std::int64_t i, int count) const {
    const float scale = scalars->gradient_scale;
    float m[Width], g[Width];
    load<Width>(m, average + i, count);
    load<Width>(g, gradient + i, count);
#pragma unroll
    for (int k = 0; k < Width; ++k) m[k] = averaged(m[k], g[k] * scale, momentum);
    store<Width>(average + i, m, count);
  }
};

template <typename Float>
struct WeightedSum {
  static constexpr int kWidth = kWide<Float>;

  Float* out;
  float a;
  const Float* x;
  float b;
  const Float* y;

  __device__ void operator()(std::int64_t i, int count) const {
    float first[kWidth], second[kWidth];
    load<kWidth>(first, x + i, count);
    load<kWidth>(second, y + i, count);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) first[k] = fmaf(a, first[k], b * second[k]);
    store<kWidth>(out + i, first, count);
  }
};

template <typename Float, int Width>
struct Update {
  static constexpr int kWidth = Width;

  float* new_parameter;
  Float* low;
  const float* parameter;
  const Float* update;
  const AdamWScalars* scalars;
  float weight_decay;
  float scale;

  __device__ void operator()(std::int64_t i, int count) const {
    const float shrink = 1.0F - scalars->learning_rate * weight_decay;
    const float step = scalars->learning_rate * scale;
    float p[Width], u[Width];
    load<Width>(p, parameter + i, count);
    load<Width>(u, update + i, count);
#pragma unroll
    for (int k = 0; k < Width; ++k) p[k] = fmaf(p[k], shrink, -(step * u[k]));
    store<Width>(new_parameter + i, p, count);
    if (low != nullptr) store<Width>(low + i, p, count);
  }
};

// Elements may be taken in packs: pointers stand at multiples of kWidth elements.
bool in_packs(std::initializer_list<const float*> pointers) {
  std::uintptr_t bits = 0;
  for (const float* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return bits % (kWidth * sizeof(float)) == 0;
}

}  // namespace

template <typename Float>
void CudaDevice<Float>::muon_squared_sums(double* sums, const AveragedGradient& from, std::int64_t n) {
  muon_sums_kernel<<<blocks_for(n, kAtomElements), kThreads, 0, stream_>>>(sums, from, n);
  CUDA_CHECK(cudaGetLastError());
  progress();
}

template <typename Float>
void CudaDevice<Float>::muon_direction(void* out, const AveragedGradient& from, const double* sums, std::int64_t n) {
  muon_direction_kernel<Float><<<blocks_for(n, kThreads), kThreads, 0, stream_>>>(low(out), from, sums, n);
  CUDA_CHECK(cudaGetLastError());
  progress();
}

template <typename Float>
void CudaDevice<Float>::muon_average(float* average, const AveragedGradient& from, std::int64_t n) {
  if (in_packs({average, from.gradient})) {
    elementwise(Average<kWidth>{average, from.gradient, from.scalars, from.momentum}, n, stream_);
  } else {
    elementwise(Average<1>{average, from.gradient, from.scalars, from.momentum}, n, stream_);
  }
  progress();
}

template <typename Float>
void CudaDevice<Float>::weighted_sum(void* out, float a, const void* x, float b, const void* y, std::int64_t n) {
  elementwise(WeightedSum<Float>{low(out), a, low(x), b, low(y)}, n, stream_);
  progress();
}

// Where the parameters' places are multiples of kWidth elements, so are those of the copies.
template <typename Float>
void CudaDevice<Float>::muon_update(float* new_parameter, void* working_copy, const float* parameter,
                                    const void* update, const AdamWScalars* scalars, float weight_decay, float scale,
                                    std::int64_t n) {
  Float* copy = working_copy == new_parameter ? nullptr : low(working_copy);
  if (in_packs({new_parameter, parameter})) {
    elementwise(Update<Float, kWidth>{new_parameter, copy, parameter, low(update), scalars, weight_decay, scale}, n,
                stream_);
  } else {
    elementwise(Update<Float, 1>{new_parameter, copy, parameter, low(update), scalars, weight_decay, scale}, n,
                stream_);
  }
  progress();
}

TRAIN_GPT_FOR_FLOAT_AND_BF16(muon_squared_sums)
TRAIN_GPT_FOR_FLOAT_AND_BF16(muon_direction)
TRAIN_GPT_FOR_FLOAT_AND_BF16(muon_average)
TRAIN_GPT_FOR_FLOAT_AND_BF16(weighted_sum)
TRAIN_GPT_FOR_FLOAT_AND_BF16(muon_update)

}  // namespace train_gpt::cuda

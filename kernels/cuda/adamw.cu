// AdamW (Loshchilov and Hutter 2019) on fp32 master parameters, with a copy rounded to bf16 on the way.
//
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  g = gradient * scale
//   p = p (1 - lr decay) - lr (m / correction1) / (sqrt(v / correction2) + eps)
//
// Bytes per parameter: 28 (p, m, v in and out, g in) and 2 for the copy; 15 FLOPs. Bound by memory: 124M parameters are
// 3.7 GB: 1.1 ms on an H100 (3.35 TB/s), 0.8 ms on an H200 (4.8 TB/s), 1.9 ms on an A100 (2.0 TB/s).
//
// Every fused multiply-add is named (the files are compiled with --fmad=false): adamw and adamw_moments agree bit for
// bit.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/tensors.cuh"

namespace train_gpt::cuda {
namespace {

__device__ __forceinline__ void update_moments(float& m, float& v, float gradient, float gradient_scale,
                                               const AdamWConstants& constants) {
  const float g = gradient * gradient_scale;
  m = fmaf(constants.beta1, m, (1.0F - constants.beta1) * g);
  v = fmaf(constants.beta2, v, (1.0F - constants.beta2) * g * g);
}

template <typename Float>
struct AdamW {
  static constexpr int kWidth = kWide<float>;

  float* new_parameter;
  Float* low;
  float* m;
  float* v;
  const float* parameter;
  const float* gradient;
  const AdamWScalars* scalars;
  AdamWConstants constants;
  bool keep_moments;

  __device__ void operator()(std::int64_t i, int count) const {
    const AdamWScalars now = *scalars;
    const float shrink = 1.0F - now.learning_rate * constants.weight_decay;
    const float step = now.learning_rate / now.beta1_correction;
    const float inverse_correction2 = 1.0F / now.beta2_correction;
    float p[kWidth], g[kWidth], first[kWidth], second[kWidth];
    load<kWidth>(p, parameter + i, count);
    load<kWidth>(g, gradient + i, count);
    load<kWidth>(first, m + i, count);
    load<kWidth>(second, v + i, count);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      update_moments(first[k], second[k], g[k], now.gradient_scale, constants);
      const float denominator = sqrtf(second[k] * inverse_correction2) + constants.eps;
      p[k] = fmaf(p[k], shrink, -(step * first[k] / denominator));
    }
    store<kWidth>(new_parameter + i, p, count);
    if (low != nullptr) store<kWidth>(low + i, p, count);
    if (keep_moments) return;
    store<kWidth>(m + i, first, count);
    store<kWidth>(v + i, second, count);
  }
};

struct AdamWMoments {
  static constexpr int kWidth = kWide<float>;

  float* m;
  float* v;
  const float* gradient;
  const AdamWScalars* scalars;
  AdamWConstants constants;

  __device__ void operator()(std::int64_t i, int count) const {
    const float gradient_scale = scalars->gradient_scale;
    float g[kWidth], first[kWidth], second[kWidth];
    load<kWidth>(g, gradient + i, count);
    load<kWidth>(first, m + i, count);
    load<kWidth>(second, v + i, count);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) update_moments(first[k], second[k], g[k], gradient_scale, constants);
    store<kWidth>(m + i, first, count);
    store<kWidth>(v + i, second, count);
  }
};

// The same for many tensors, each of which decays or not.
template <typename Step>
struct OfArena {
  Step step;

  __device__ void operator()(const Device::ArenaTensor& tensor, std::int64_t i, int count) const {
    Step mine = step;
    if (!tensor.decays) mine.constants.weight_decay = 0;
    mine(tensor.offset + i, count);
  }
};

}  // namespace

// In fp32, where there is no low copy, the parameters serve as their own.
template <typename Float>
void CudaDevice<Float>::adamw(float* new_parameter, void* working_copy, float* m, float* v, const float* parameter,
                              const float* gradient, const AdamWScalars* scalars, const AdamWConstants& constants,
                              bool keep_moments, std::int64_t n) {
  const AdamW<Float> step{new_parameter,
                          working_copy == new_parameter ? nullptr : low(working_copy),
                          m,
                          v,
                          parameter,
                          gradient,
                          scalars,
                          constants,
                          keep_moments};
  elementwise(step, n, stream_);
  progress();
}

template <typename Float>
void CudaDevice<Float>::adamw_moments(float* m, float* v, const float* gradient, const AdamWScalars* scalars,
                                      const AdamWConstants& constants, std::int64_t n) {
  elementwise(AdamWMoments{m, v, gradient, scalars, constants}, n, stream_);
  progress();
}

template <typename Float>
void CudaDevice<Float>::adamw_all(float* new_parameters, void* working_copies, float* m, float* v,
                                  const float* parameters, const float* gradients, std::span<const ArenaTensor> tensors,
                                  const AdamWScalars* scalars, const AdamWConstants& constants, bool keep_moments) {
  Float* copies = working_copies == new_parameters ? nullptr : low(working_copies);
  const AdamW<Float> step{new_parameters, copies, m, v, parameters, gradients, scalars, constants, keep_moments};
  for_all_tensors(OfArena<AdamW<Float>>{step}, tensors, stream_);
  progress();
}

template <typename Float>
void CudaDevice<Float>::adamw_moments_all(float* m, float* v, const float* gradients,
                                          std::span<const ArenaTensor> tensors, const AdamWScalars* scalars,
                                          const AdamWConstants& constants) {
  for_all_tensors(OfArena<AdamWMoments>{{m, v, gradients, scalars, constants}}, tensors, stream_);
  progress();
}

TRAIN_GPT_FOR_FLOAT_AND_BF16(adamw_all)
TRAIN_GPT_FOR_FLOAT_AND_BF16(adamw_moments_all)
TRAIN_GPT_FOR_FLOAT_AND_BF16(adamw)
TRAIN_GPT_FOR_FLOAT_AND_BF16(adamw_moments)

}  // namespace train_gpt::cuda

// AdamW and gradient norms: passes over all parameters, bound by memory. One task per atom.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/lanes.h"

namespace train_gpt::cpu {
namespace {

struct Moments {
  float m = 0;
  float v = 0;
};

// The one place where moments are updated: adamw and adamw_moments agree bit for bit.
inline Moments updated(float m, float v, float gradient, float gradient_scale, const AdamWConstants& constants) {
  const float g = gradient * gradient_scale;
  return {std::fma(constants.beta1, m, (1.0F - constants.beta1) * g),
          std::fma(constants.beta2, v, (1.0F - constants.beta2) * g * g)};
}

template <bool KeepMoments>
void adamw_block(float* new_parameter, float* m, float* v, const float* parameter, const float* gradient,
                 const AdamWScalars& scalars, const AdamWConstants& constants, std::int64_t begin, std::int64_t end) {
  // p (1 - lr decay) - lr (m / correction1) / (sqrt(v / correction2) + eps)
  const float shrink = 1.0F - scalars.learning_rate * constants.weight_decay;
  const float step = scalars.learning_rate / scalars.beta1_correction;
  const float inverse_correction2 = 1.0F / scalars.beta2_correction;
  const float scale = scalars.gradient_scale;
  const AdamWConstants c = constants;
#pragma GCC ivdep  // new_parameter may be parameter: the same element, never another
  for (std::int64_t i = begin; i < end; ++i) {
    const Moments moments = updated(m[i], v[i], gradient[i], scale, c);
    const float denominator = std::sqrt(moments.v * inverse_correction2) + c.eps;
    new_parameter[i] = std::fma(parameter[i], shrink, -(step * moments.m / denominator));
    if constexpr (!KeepMoments) {
      m[i] = moments.m;
      v[i] = moments.v;
    }
  }
}

}  // namespace

void CpuDevice::adamw(float* new_parameter, void* low, float* m, float* v, const float* parameter,
                      const float* gradient, const AdamWScalars* scalars, const AdamWConstants& constants,
                      bool keep_moments, std::int64_t n) {
  const auto block = keep_moments ? adamw_block<true> : adamw_block<false>;
  pool_.run_blocks(n, kAtomElements, [&](std::int64_t begin, std::int64_t end) {
    block(new_parameter, m, v, parameter, gradient, *scalars, constants, begin, end);
  });
  if (low != nullptr && low != new_parameter) from_float(low, new_parameter, n);
}

void CpuDevice::adamw_moments(float* m, float* v, const float* gradient, const AdamWScalars* scalars,
                              const AdamWConstants& constants, std::int64_t n) {
  const float scale = scalars->gradient_scale;
  const AdamWConstants c = constants;
  pool_.run_blocks(n, kAtomElements, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      const Moments moments = updated(m[i], v[i], gradient[i], scale, c);
      m[i] = moments.m;
      v[i] = moments.v;
    }
  });
}

void CpuDevice::squared_sums(double* sums, const float* x, std::int64_t n) {
  using Eight = VectorOf<float, 8>::type;
  using EightWide = VectorOf<double, 8>::type;
  constexpr std::int64_t kParts = 4, kPart = 8;
  pool_.run_blocks(n, kAtomElements, [&](std::int64_t begin, std::int64_t end) {
    EightWide squares[kParts] = {};  // side by side: a single chain would wait for its additions
    const auto accumulate = [&](const float* values) {
      for (std::int64_t part = 0; part < kParts; ++part) {
        Eight narrow;
        std::memcpy(&narrow, values + part * kPart, sizeof narrow);
        const EightWide wide = __builtin_convertvector(narrow, EightWide);
        squares[part] += wide * wide;
      }
    };
    std::int64_t i = begin;
    for (; i + kParts * kPart <= end; i += kParts * kPart) accumulate(x + i);
    if (i < end) {
      float rest[kParts * kPart] = {};
      std::copy(x + i, x + end, rest);
      accumulate(rest);
    }
    sums[begin / kAtomElements] = fold<double, 8>((squares[0] + squares[1]) + (squares[2] + squares[3]));
  });
}

}  // namespace train_gpt::cpu

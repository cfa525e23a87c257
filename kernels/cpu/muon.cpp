// The elementwise parts of Muon: passes over a matrix, bound by memory. One task per atom.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/lanes.h"

namespace train_gpt::cpu {
namespace {

// M', and from it G': the one place where they are computed, so that all operations have the same bits.
inline float averaged(float average, float gradient, float momentum) {
  return std::fma(momentum, average, (1.0F - momentum) * gradient);
}
inline float followed(float average, float gradient, float momentum) {
  return averaged(averaged(average, gradient, momentum), gradient, momentum);
}

}  // namespace

void CpuDevice::muon_squared_sums(double* sums, const AveragedGradient& from, std::int64_t n) {
  constexpr std::int64_t kParts = 16;  // side by side: a single chain would wait for its additions
  const float scale = from.scalars->gradient_scale;
  pool_.run_blocks(n, kAtomElements, [&](std::int64_t begin, std::int64_t end) {
    VectorOf<double, kParts>::type squares{};
    for (std::int64_t i = begin; i < end; i += kParts) {
      VectorOf<double, kParts>::type wide{};
      for (std::int64_t k = 0; k < std::min(kParts, end - i); ++k)
        wide[k] = static_cast<double>(followed(from.average[i + k], from.gradient[i + k] * scale, from.momentum));
      squares += wide * wide;
    }
    sums[begin / kAtomElements] = fold<double, kParts>(squares);
  });
}

void CpuDevice::muon_direction(void* out, const AveragedGradient& from, const double* sums, std::int64_t n) {
  double total = 0;
  for (std::int64_t a = 0; a * kAtomElements < n; ++a) total += sums[a];
  const auto norm = static_cast<float>(std::sqrt(total) + 1e-7);
  const float scale = from.scalars->gradient_scale;
  float* to = floats(out);
  pool_.run_blocks(n, kAtomElements, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i)
      to[i] = followed(from.average[i], from.gradient[i] * scale, from.momentum) / norm;
  });
}

void CpuDevice::muon_average(float* average, const AveragedGradient& from, std::int64_t n) {
  const float scale = from.scalars->gradient_scale;
  pool_.run_blocks(n, kAtomElements, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep  // average is from.average: the same element, never another
    for (std::int64_t i = begin; i < end; ++i)
      average[i] = averaged(from.average[i], from.gradient[i] * scale, from.momentum);
  });
}

void CpuDevice::weighted_sum(void* out, float a, const void* x, float b, const void* y, std::int64_t n) {
  float* to = floats(out);
  const float *first = floats(x), *second = floats(y);
  pool_.run_blocks(n, kAtomElements, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) to[i] = std::fma(a, first[i], b * second[i]);
  });
}

void CpuDevice::muon_update(float* new_parameter, void* low, const float* parameter, const void* update,
                            const AdamWScalars* scalars, float weight_decay, float scale, std::int64_t n) {
  const float shrink = 1.0F - scalars->learning_rate * weight_decay;
  const float step = scalars->learning_rate * scale;
  const float* direction = floats(update);
  pool_.run_blocks(n, kAtomElements, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i)
      new_parameter[i] = std::fma(parameter[i], shrink, -(step * direction[i]));
  });
  if (low != nullptr && low != new_parameter) from_float(low, new_parameter, n);
}

}  // namespace train_gpt::cpu

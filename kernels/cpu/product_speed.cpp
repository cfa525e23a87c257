#include "kernels/cpu/product_speed.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "kernels/cpu/product.h"

namespace train_gpt::cpu {
namespace {

constexpr int kRuns = 5;  // the fastest counts: other processes only take time away

template <typename Work>
double fastest_seconds(const Work& work) {
  double fastest = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    fastest = std::min(fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return fastest;
}

#if defined(__x86_64__) || defined(__i386__)
#define TRAIN_GPT_VECTOR_REGISTER "+x"
#else
#define TRAIN_GPT_VECTOR_REGISTER "+w"
#endif

// Independent chains, enough to fill two units of four cycles each.
double multiply_add_gflops() {
  constexpr int kChains = 10, kLength = 20000;
  const double seconds = fastest_seconds([] {
    Vector chains[kChains];
#pragma GCC unroll 10
    for (Vector& chain : chains) chain = broadcast(1);
    const Vector factor = broadcast(0.5F);
    for (int i = 0; i < kLength; ++i) {
#pragma GCC unroll 10
      for (Vector& chain : chains) {
        chain = multiply_add(chain, factor, factor);
        asm volatile("" : TRAIN_GPT_VECTOR_REGISTER(chain));  // each chain is computed, and by itself
      }
    }
  });
  return 2.0 * kChains * kLength * static_cast<double>(kVectorLanes) / seconds * 1e-9;
}

// By how much the vectors of this processor are wider than those that the program was compiled for.
double unused_width() {
#if defined(__x86_64__)
  const std::int64_t lanes = __builtin_cpu_supports("avx512f") ? 16 : __builtin_cpu_supports("avx2") ? 8 : 4;
  const bool could_fuse = !kFusedMultiplyAdd && __builtin_cpu_supports("fma");
  return std::max(1.0, static_cast<double>(lanes) / kVectorLanes) * (could_fuse ? 2 : 1);
#else
  return 1;
#endif
}

double product_gflops() {
  constexpr std::int64_t kSize = 192;
  ThreadPool pool(1);
  std::vector<float> buffers(static_cast<std::size_t>(3 * kSize * kSize + kProductScratch + 16), 0.1F);
  float* factors = buffers.data() + kProductScratch + 16;
  void* unaligned = buffers.data();
  std::size_t space = (kProductScratch + 16) * sizeof(float);
  auto* scratch = static_cast<float*>(std::align(64, kProductScratch * sizeof(float), unaligned, space));
  const double seconds = fastest_seconds([&] {
    multiply(pool, 0, scratch, {.out = factors + 2 * kSize * kSize, .stride = kSize}, {factors, kSize, false},
             {factors + kSize * kSize, kSize, false}, kSize, kSize, kSize);
  });
  return 2.0 * kSize * kSize * kSize / seconds * 1e-9;
}

}  // namespace

ProductSpeed measure_product_speed() { return {product_gflops(), multiply_add_gflops() * unused_width()}; }

}  // namespace train_gpt::cpu

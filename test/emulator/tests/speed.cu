// The cost of the emulator's operations: one line each, beside the cost that a feasibility study saw.
#include <cuda_runtime.h>

#include <time.h>

#include <algorithm>
#include <cstdio>

#include "ptx.h"

namespace {

using namespace emulator::ptx;

__global__ void empty() {}
__global__ void one_add(float* out) { out[threadIdx.x] += 1; }
template <int kRounds>
__global__ void barriers() {
  for (int i = 0; i < kRounds; ++i) __syncthreads();
}
template <int kRounds>
__global__ void shuffles(float* out) {
  float value = threadIdx.x;
  for (int i = 0; i < kRounds; ++i) value += __shfl_xor_sync(~0u, value, 1);
  out[threadIdx.x] = value;
}
template <int kRounds>
__global__ void products(float* out) {
  float d[4] = {};
  std::uint32_t a[4] = {}, b[2] = {};
  for (int i = 0; i < kRounds; ++i) mma_m16n8k16_bf16(d, a, b);
  out[threadIdx.x] = d[0];
}
template <int kRounds>
__global__ void matrix_loads(unsigned* out) {
  __shared__ __align__(16) unsigned short rows[32][8];
  for (int i = 0; i < 8; ++i) rows[threadIdx.x][i] = 0;
  __syncwarp();
  std::uint32_t r[4] = {};
  unsigned sum = 0;
  for (int i = 0; i < kRounds; ++i) {
    ldmatrix_x4(r, rows[threadIdx.x]);
    sum += r[0];
  }
  out[threadIdx.x] = sum;
}

double processor_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// Processor time (other processes may share the core) per unit of work: the best of several runs of `launch`, which
// does `units` of it.
template <class Launch>
double cost(double units, Launch launch) {
  double best = 1e30;
  for (int run = 0; run < 7; ++run) {
    const double start = processor_nanoseconds();
    launch();
    cudaDeviceSynchronize();
    best = std::min(best, (processor_nanoseconds() - start) / units);
  }
  return best;
}

void line(const char* what, double nanoseconds, double seen) {
  std::printf("  %-34s %8.1f ns   (study: %.0f ns, ratio %.2f)\n", what, nanoseconds, seen, nanoseconds / seen);
}

}  // namespace

int main() {
  float* out = nullptr;
  cudaMalloc(&out, 1024 * sizeof(float));
  cudaMemset(out, 0, 1024 * sizeof(float));
  std::printf("costs of the emulator on this machine:\n");
  line("empty launch",
       cost(1000,
            [] {
              for (int i = 0; i < 1000; ++i) empty<<<1, 1>>>();
            }),
       1350);
  line("thread without synchronisation",
       cost(200 * 1024,
            [&] {
              for (int i = 0; i < 200; ++i) one_add<<<1, 1024>>>(out);
            }),
       18);
  line("__syncthreads, per thread", cost(100.0 * 256, [&] { barriers<100><<<1, 256>>>(); }), 77);
  line("shuffle, per lane", cost(100.0 * 256, [&] { shuffles<100><<<1, 256>>>(out); }), 55);
  line("mma.m16n8k16, per warp", cost(200.0 * 8, [&] { products<200><<<1, 256>>>(out); }), 2600);
  line("ldmatrix.x4, per warp", cost(200.0, [&] { matrix_loads<200><<<1, 32>>>(reinterpret_cast<unsigned*>(out)); }),
       1900);
  cudaFree(out);
}

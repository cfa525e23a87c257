// Known-good kernels.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "good.h"
#include "ptx.h"

namespace {

using namespace emulator::ptx;

template <class T>
T* on_device(const std::vector<T>& host) {
  T* pointer = nullptr;
  cudaMalloc(&pointer, host.size() * sizeof(T));
  cudaMemcpy(pointer, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
  return pointer;
}
template <class T>
std::vector<T> from_device(const T* pointer, std::size_t n) {
  std::vector<T> host(n);
  cudaMemcpy(host.data(), pointer, n * sizeof(T), cudaMemcpyDeviceToHost);
  return host;
}

// ---- warp operations ----
constexpr int kResults = 16;
__global__ void all_warp_operations(int* out) {
  const int lane = threadIdx.x % 32;
  int* mine = out + threadIdx.x * kResults;
  mine[0] = __shfl_sync(~0u, lane, 5);
  mine[1] = __shfl_sync(~0u, lane, 3, 8);
  mine[2] = __shfl_up_sync(~0u, lane, 2);
  mine[3] = __shfl_down_sync(~0u, lane, 2, 16);
  mine[4] = __shfl_xor_sync(~0u, lane, 7);
  mine[5] = static_cast<int>(__shfl_xor_sync(~0u, 1.5 * lane, 16) * 2);
  mine[6] = static_cast<int>(__ballot_sync(~0u, lane % 3 == 0));
  mine[7] = __any_sync(~0u, lane == 9) + 2 * __all_sync(~0u, lane >= 0) + 4 * __all_sync(~0u, lane != 9);
  mine[8] = static_cast<int>(__match_any_sync(~0u, lane / 8));
  mine[9] = static_cast<int>(__reduce_add_sync(~0u, static_cast<unsigned>(lane)));
  mine[10] = __reduce_min_sync(~0u, 7 - lane);
  mine[11] = static_cast<int>(__reduce_xor_sync(~0u, static_cast<unsigned>(lane)));
  const unsigned half = lane < 16 ? 0xFFFFu : 0xFFFF0000u;  // two groups at different speeds
  int sum = lane;
  for (int round = 0; round < (lane < 16 ? 4 : 2); ++round) sum += __shfl_xor_sync(half, sum, 1 << round);
  mine[12] = sum;
  mine[13] = __float2bfloat16(1.0f) == __shfl_sync(~0u, __float2bfloat16(static_cast<float>(lane)), 1);
  mine[14] = __syncthreads_count(lane == 0);
  mine[15] = __syncthreads_and(lane < 32) + 2 * __syncthreads_or(lane == 40);
}

// The last warp of a block of 48 has 16 lanes; the full mask means those.
__global__ void small_last_warp(int* out) {
  out[threadIdx.x] = __popc(__ballot_sync(~0u, 1));
  if (threadIdx.x < 32) return;
  out[threadIdx.x] += __shfl_xor_sync(~0u, 100, 8);
}

// Neighbouring lanes exchange through shared memory, ordered by __syncwarp: all lanes, then pairs.
__global__ void exchange_by_syncwarp(int* out) {
  __shared__ int buffer[64];
  const int lane = threadIdx.x % 32;
  int* mine = buffer + threadIdx.x - lane;
  mine[lane] = lane;
  __syncwarp();
  int value = mine[31 - lane];
  __syncwarp();
  mine[lane] = 10 * value;
  __syncwarp(3u << (lane & ~1));
  value += mine[lane ^ 1];
  out[threadIdx.x] = value;
}

// ---- fragments ----
// Each lane holds the registers that the PTX ISA's tables give it.
template <int K, bool kBf16>
__global__ void product_of_fragments(float* d, const float* a, const float* b) {
  const int lane = threadIdx.x, group = lane / 4, t = lane % 4;
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = 100 * (group + 8 * (i / 2)) + 2 * t + i % 2;  // C: 100 row + column
  const auto at_a = [&](int row, int k) { return a[row * K + k]; };
  const auto at_b = [&](int k, int column) { return b[k * 8 + column]; };
  if constexpr (kBf16) {
    const auto pair = [](float low, float high) {
      const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
      std::uint32_t bits;
      std::memcpy(&bits, &both, sizeof bits);
      return bits;
    };
    const std::uint32_t fa[4] = {pair(at_a(group, 2 * t), at_a(group, 2 * t + 1)),
                                 pair(at_a(group + 8, 2 * t), at_a(group + 8, 2 * t + 1)),
                                 pair(at_a(group, 2 * t + 8), at_a(group, 2 * t + 9)),
                                 pair(at_a(group + 8, 2 * t + 8), at_a(group + 8, 2 * t + 9))};
    const std::uint32_t fb[2] = {pair(at_b(2 * t, group), at_b(2 * t + 1, group)),
                                 pair(at_b(2 * t + 8, group), at_b(2 * t + 9, group))};
    mma_m16n8k16_bf16(sums, fa, fb);
  } else if constexpr (K == 8) {
    const std::uint32_t fa[4] = {to_tf32(at_a(group, t)), to_tf32(at_a(group + 8, t)), to_tf32(at_a(group, t + 4)),
                                 to_tf32(at_a(group + 8, t + 4))};
    const std::uint32_t fb[2] = {to_tf32(at_b(t, group)), to_tf32(at_b(t + 4, group))};
    mma_m16n8k8_tf32(sums, fa, fb);
  } else {
    const std::uint32_t fa[2] = {to_tf32(at_a(group, t)), to_tf32(at_a(group + 8, t))};
    const std::uint32_t fb[1] = {to_tf32(at_b(t, group))};
    mma_m16n8k4_tf32(sums, fa, fb);
  }
  for (int i = 0; i < 4; ++i) d[(group + 8 * (i / 2)) * 8 + 2 * t + i % 2] = sums[i];
}

template <int K, bool kBf16>
void check_product() {
  std::vector<float> a(16 * K), b(K * 8);  // small integers: exact in bf16 and tf32
  for (int i = 0; i < 16 * K; ++i) a[i] = static_cast<float>(i * 7 % 13 - 6);
  for (int i = 0; i < K * 8; ++i) b[i] = static_cast<float>(i * 5 % 11 - 5);
  float* d = on_device(std::vector<float>(16 * 8));
  product_of_fragments<K, kBf16><<<1, 32>>>(d, on_device(a), on_device(b));
  const std::vector<float> got = from_device(d, 16 * 8);
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float expected = static_cast<float>(100 * row + column);
      for (int k = 0; k < K; ++k) expected += a[row * K + k] * b[k * 8 + column];
      DEMAND(got[row * 8 + column] == expected);
    }
  }
}

// Four 8 x 8 matrices of numbered 16-bit elements; every lane writes what it received.
__global__ void load_matrices(unsigned* out) {
  __shared__ __align__(16) unsigned short matrices[4][8][8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) matrices[i / 64][i / 8 % 8][i % 8] = static_cast<unsigned short>(i);
  __syncwarp();
  const void* row = matrices[lane / 8][lane % 8];
  std::uint32_t r1[1], r2[2], r4[4], t1[1], t2[2], t4[4];
  ldmatrix_x1(r1, row);
  ldmatrix_x2(r2, row);
  ldmatrix_x4(r4, row);
  ldmatrix_x1_trans(t1, row);
  ldmatrix_x2_trans(t2, row);
  ldmatrix_x4_trans(t4, row);
  unsigned* mine = out + 14 * lane;
  mine[0] = r1[0];
  mine[1] = t1[0];
  for (int i = 0; i < 2; ++i) mine[2 + i] = r2[i];
  for (int i = 0; i < 2; ++i) mine[4 + i] = t2[i];
  for (int i = 0; i < 4; ++i) mine[6 + i] = r4[i];
  for (int i = 0; i < 4; ++i) mine[10 + i] = t4[i];
}

// ---- shared memory ----
template <class T, int kSize>
__device__ T rotate(T value) {
  __shared__ T buffer[kSize];
  __syncthreads();
  buffer[threadIdx.x] = value;
  __syncthreads();
  return buffer[(threadIdx.x + 1) % kSize];
}
__global__ void two_instances(double* out) {
  out[threadIdx.x] =
      rotate<int, 64>(static_cast<int>(threadIdx.x)) + rotate<double, 64>(0.5 * threadIdx.x) + rotate<int, 64>(1000);
}
__global__ void transpose(float* out, const float* in, int n) {
  __shared__ float tile[32][33];
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) {
    if (x < n && y + j < n) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
  }
  __syncthreads();
  const int tx = blockIdx.y * 32 + threadIdx.x, ty = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) {
    if (tx < n && ty + j < n) out[(ty + j) * n + tx] = tile[threadIdx.x][threadIdx.y + j];
  }
}
__global__ void large_dynamic(float* out, int n) {
  extern __shared__ float buffer[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) buffer[i] = i;
  __syncthreads();
  out[threadIdx.x] = buffer[n - 1 - threadIdx.x];
}
__global__ void copies_of_all_sizes(float* out, const float* in) {
  __shared__ __align__(16) float buffer[3][32][4];
  cp_async_4(&buffer[0][threadIdx.x][0], in + threadIdx.x);
  cp_async_commit_group();
  cp_async_8(&buffer[1][threadIdx.x][0], in + 2 * threadIdx.x);
  cp_async_commit_group();
  cp_async_16_zfill(&buffer[2][threadIdx.x][0], in + 4 * threadIdx.x, threadIdx.x % 5 * 4);
  cp_async_commit_group();
  cp_async_wait_group<1>();  // the first two groups
  float sum = buffer[0][threadIdx.x][0] + buffer[1][threadIdx.x][1];
  cp_async_wait_all();
  for (const float value : buffer[2][threadIdx.x]) sum += 1000 * value;
  out[threadIdx.x] = sum;
}

// ---- shapes, atomics, constants ----
__constant__ float factors[3];
__device__ int launches_seen = 0;
__global__ void histogram(int* bins, const int* in, int n, int* calls) {
  __shared__ int local[10];
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  if (thread < 10) local[thread] = 0;
  __syncthreads();
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  if (i < static_cast<unsigned>(n)) atomicAdd(&local[in[i]], 1);
  __syncthreads();
  if (thread < 10) atomicAdd(&bins[thread], local[thread]);
  if (thread == 0) atomicMax(calls, static_cast<int>(block));
  if (thread == 0) atomicAdd(&launches_seen, 1);
}
__global__ void scaled(float* out) { out[threadIdx.x] = factors[threadIdx.x] * fmaxf(rsqrtf(4.0f), __expf(-100.0f)); }

}  // namespace

void warp_operations() {
  int* out = on_device(std::vector<int>(64 * kResults));
  all_warp_operations<<<1, 64>>>(out);
  const std::vector<int> got = from_device(out, 64 * kResults);
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32;
    const int* mine = &got[thread * kResults];
    DEMAND(mine[0] == 5);
    DEMAND(mine[1] == lane / 8 * 8 + 3);
    DEMAND(mine[2] == (lane < 2 ? lane : lane - 2));
    DEMAND(mine[3] == (lane % 16 + 2 < 16 ? lane + 2 : lane));
    DEMAND(mine[4] == (lane ^ 7));
    DEMAND(mine[5] == 3 * (lane ^ 16));
    DEMAND(mine[6] == 0x49249249);
    DEMAND(mine[7] == 3);
    DEMAND(mine[8] == static_cast<int>(0xFFu << lane / 8 * 8));
    DEMAND(mine[9] == 496 && mine[10] == -24 && mine[11] == 0);
    DEMAND(mine[12] == (lane < 16 ? 120 : 6 + 4 * (lane & ~3)));
    DEMAND(mine[13] == 1 && mine[14] == 2 && mine[15] == 1);
  }
  int* small = on_device(std::vector<int>(48));
  small_last_warp<<<1, 48>>>(small);
  const std::vector<int> counts = from_device(small, 48);
  for (int i = 0; i < 48; ++i) DEMAND(counts[i] == (i < 32 ? 32 : 116));
  int* exchanged = on_device(std::vector<int>(64));
  exchange_by_syncwarp<<<1, 64>>>(exchanged);
  const std::vector<int> values = from_device(exchanged, 64);
  for (int i = 0; i < 64; ++i) DEMAND(values[i] == 31 - i % 32 + 10 * (31 - (i % 32 ^ 1)));
}

void tensor_core_fragments() {
  check_product<16, true>();
  check_product<8, false>();
  check_product<4, false>();
  unsigned* out = on_device(std::vector<unsigned>(32 * 14));
  load_matrices<<<1, 32>>>(out);
  const std::vector<unsigned> got = from_device(out, 32 * 14);
  for (unsigned lane = 0; lane < 32; ++lane) {
    const auto straight = [&](unsigned i) {
      const unsigned low = 64 * i + 8 * (lane / 4) + 2 * (lane % 4);
      return low | (low + 1) << 16;
    };
    const auto transposed = [&](unsigned i) {
      const unsigned low = 64 * i + 8 * (2 * (lane % 4)) + lane / 4;
      return low | (low + 8) << 16;
    };
    const unsigned* mine = &got[14 * lane];
    DEMAND(mine[0] == straight(0) && mine[1] == transposed(0));
    for (unsigned i = 0; i < 2; ++i) DEMAND(mine[2 + i] == straight(i) && mine[4 + i] == transposed(i));
    for (unsigned i = 0; i < 4; ++i) DEMAND(mine[6 + i] == straight(i) && mine[10 + i] == transposed(i));
  }
}

void shared_memory() {
  double* sums = on_device(std::vector<double>(64));
  two_instances<<<1, 64>>>(sums);
  const std::vector<double> rotated = from_device(sums, 64);
  for (int i = 0; i < 64; ++i) DEMAND(rotated[i] == 1.5 * ((i + 1) % 64) + 1000);

  const int n = 70;
  std::vector<float> in(n * n);
  for (int i = 0; i < n * n; ++i) in[i] = static_cast<float>(i);
  float* out = on_device(std::vector<float>(n * n));
  transpose<<<dim3(3, 3), dim3(32, 8)>>>(out, on_device(in), n);
  const std::vector<float> got = from_device(out, n * n);
  for (int i = 0; i < n * n; ++i) DEMAND(got[i] == in[i % n * n + i / n]);

  const int floats = 25'000;
  DEMAND(cudaFuncSetAttribute(large_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 4 * floats) == cudaSuccess);
  large_dynamic<<<1, 32, 4 * floats>>>(on_device(std::vector<float>(32)), 32);  // fewer are used kernel in between
  large_dynamic<<<1, 32, 4 * floats>>>(out, floats);
  DEMAND(from_device(out, 32)[31] == floats - 32);
  DEMAND(cudaFuncSetAttribute(large_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20) ==
         cudaErrorInvalidValue);
  DEMAND(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);

  std::vector<float> numbers(128);
  for (int i = 0; i < 128; ++i) numbers[i] = static_cast<float>(i + 1);
  copies_of_all_sizes<<<1, 32>>>(out, on_device(numbers));
  const std::vector<float> copied = from_device(out, 32);
  for (int i = 0; i < 32; ++i) {
    float expected = static_cast<float>(i + 1 + 2 * i + 2);
    for (int j = 0; j < i % 5; ++j) expected += 1000 * static_cast<float>(4 * i + j + 1);
    DEMAND(copied[i] == expected);
  }
}

void block_shapes_and_atomics() {
  const int n = 1000;
  std::vector<int> in(n);
  for (int i = 0; i < n; ++i) in[i] = i * i % 10;
  std::vector<int> expected(10);
  for (const int value : in) ++expected[value];
  int* bins = on_device(std::vector<int>(10, 0));
  int* calls = on_device(std::vector<int>(1, 0));
  histogram<<<dim3(2, 3, 2), dim3(5, 4, 5)>>>(bins, on_device(in), n, calls);
  DEMAND(from_device(bins, 10) == expected);
  DEMAND(from_device(calls, 1)[0] == 11);
  int seen = 0;
  cudaMemcpyFromSymbol(&seen, launches_seen, sizeof seen);
  DEMAND(seen == 12);
  const float values[3] = {2, 4, 6};
  cudaMemcpyToSymbol(factors, values, sizeof values);
  float* out = on_device(std::vector<float>(3));
  scaled<<<1, 3>>>(out);
  DEMAND(from_device(out, 3) == (std::vector<float>{1, 2, 3}));
}

// Faults inside kernels.
#include <cuda_runtime.h>

#include <cmath>
#include <vector>

#include "faults.h"
#include "ptx.h"

namespace {

using namespace emulator::ptx;
constexpr int kThreads = 64;

float* device_floats(int n, float value = 1) {
  float* pointer = nullptr;
  cudaMalloc(&pointer, n * sizeof(float));
  const std::vector<float> host(n, value);
  cudaMemcpy(pointer, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  return pointer;
}
float first_of(const float* device) {
  float value = 0;
  cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost);
  return value;
}

// ---- out of bounds ----
__global__ void write_at(float* out, int index) { out[index] = 1; }
void global_beyond_end() {
  write_at<<<1, 1>>>(device_floats(100), 100);
  cudaDeviceSynchronize();
}
void global_far_beyond_end() {
  write_at<<<1, 1>>>(device_floats(1000), 1100);
  cudaDeviceSynchronize();
}
void global_before_begin() {
  write_at<<<1, 1>>>(device_floats(100), -1);
  cudaDeviceSynchronize();
}
__global__ void write_shared_at(float* out, int index) {
  __shared__ float row[20];
  __shared__ float other[20];
  row[index] = 1;
  other[0] = 2;
  out[0] = other[0];
}
void shared_beyond_end() {
  write_shared_at<<<1, 1>>>(device_floats(1), 20);
  cudaDeviceSynchronize();
}
__global__ void write_dynamic_at(int index) {
  extern __shared__ float buffer[];
  buffer[index] = 1;
}
void dynamic_beyond_end() {
  write_dynamic_at<<<1, 1, 40>>>(10);
  cudaDeviceSynchronize();
}
__global__ void copy_vector(float4* out, const float* in) { out[0] = *reinterpret_cast<const float4*>(in + 1); }
void misaligned_vector() {
  copy_vector<<<1, 1>>>(reinterpret_cast<float4*>(device_floats(4)), device_floats(8));
  cudaDeviceSynchronize();
}

// ---- barriers ----
__global__ void reverse(float* out, const float* in, bool first, bool second) {
  __shared__ float buffer[kThreads];
  for (int round = 0; round < 2; ++round) {
    buffer[threadIdx.x] = in[threadIdx.x] + round;
    if (first) __syncthreads();
    out[threadIdx.x] = buffer[kThreads - 1 - threadIdx.x];
    if (second) __syncthreads();
  }
}
void run_reverse(bool first, bool second) {
  float* out = device_floats(kThreads);
  std::vector<float> in(kThreads);
  for (int i = 0; i < kThreads; ++i) in[i] = static_cast<float>(i);
  float* device_in = device_floats(kThreads);
  cudaMemcpy(device_in, in.data(), sizeof(float) * kThreads, cudaMemcpyHostToDevice);
  reverse<<<1, kThreads>>>(out, device_in, first, second);
  std::vector<float> got(kThreads);
  cudaMemcpy(got.data(), out, sizeof(float) * kThreads, cudaMemcpyDeviceToHost);
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right = right && got[i] == in[kThreads - 1 - i] + 1;
  demand_right(right);
}
void missing_first_barrier() { run_reverse(false, true); }
__global__ void repeated_sums(float* out) {
  __shared__ float partial[2];
  float total = 0;
  for (int round = 1; round <= 4; ++round) {
    float value = static_cast<float>(round);
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    total += partial[0] + partial[1];
    // here a second barrier is missing: the next round overwrites what others still read
  }
  out[threadIdx.x] = total;
}
void missing_second_barrier() {
  float* out = device_floats(kThreads);
  repeated_sums<<<1, kThreads>>>(out);
  std::vector<float> got(kThreads);
  cudaMemcpy(got.data(), out, sizeof(float) * kThreads, cudaMemcpyDeviceToHost);
  bool right = true;
  for (const float value : got) right = right && value == 640;
  demand_right(right);
}
__global__ void neighbours(float* out, bool sync) {
  __shared__ float buffer[32];
  buffer[threadIdx.x] = threadIdx.x;
  if (sync) __syncwarp();
  out[threadIdx.x] = buffer[(threadIdx.x + 1) % 32];
}
void missing_syncwarp() {
  float* out = device_floats(32);
  neighbours<<<1, 32>>>(out, false);
  demand_right(first_of(out) == 1);
}
__global__ void barrier_in_branch(float* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}
void divergent_barrier() {
  barrier_in_branch<<<1, kThreads>>>(device_floats(kThreads));
  cudaDeviceSynchronize();
}
__global__ void barrier_after_exit(float* out, unsigned n) {
  if (threadIdx.x >= n) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
void barrier_without_exited_threads() {
  barrier_after_exit<<<1, kThreads>>>(device_floats(kThreads), 40);
  cudaDeviceSynchronize();
}

// ---- warp operations ----
__global__ void shuffle_in_branch(float* out) {
  float value = 1;
  if (threadIdx.x < 16) value = __shfl_xor_sync(~0u, value, 1);
  out[threadIdx.x] = value;
}
void shuffle_without_half_the_lanes() {
  shuffle_in_branch<<<1, 32>>>(device_floats(32));
  cudaDeviceSynchronize();
}
__global__ void shuffle_from_outside(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xFFFFu, 1.0f, 20);
}
void shuffle_from_absent_lane() {
  shuffle_from_outside<<<1, 32>>>(device_floats(32));
  cudaDeviceSynchronize();
}
__global__ void two_operations(float* out) {
  out[threadIdx.x] = threadIdx.x < 16 ? __shfl_xor_sync(~0u, 1.0f, 1) : __ballot_sync(~0u, 1);
}
void divergent_warp() {
  two_operations<<<1, 32>>>(device_floats(32));
  cudaDeviceSynchronize();
}
__global__ void wrong_mask(float* out) { out[threadIdx.x] = __shfl_sync(1u << (threadIdx.x + 1) % 32, 1.0f, 0); }
void mask_without_caller() {
  wrong_mask<<<1, 32>>>(device_floats(32));
  cudaDeviceSynchronize();
}
__global__ void opposite_barriers(float* out) {
  if (threadIdx.x < 32) {
    __syncwarp();
    if (threadIdx.x == 0) __syncwarp(3);
  }
  __syncthreads();
  out[0] = 1;
}
void thread_waits_for_ever() {
  opposite_barriers<<<1, kThreads>>>(device_floats(1));
  cudaDeviceSynchronize();
}

// ---- memory contents ----
__global__ void sum_unwritten(float* out) {
  __shared__ float buffer[kThreads];
  if (threadIdx.x != 5) buffer[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (const float value : buffer) sum += value;
    out[0] = sum;
  }
}
void uninitialised_shared() {
  float* out = device_floats(1);
  sum_unwritten<<<1, kThreads>>>(out);
  demand_right(!std::isnan(first_of(out)));
}
__global__ void copy_float(float* out, const float* in) { out[0] = in[0]; }
void uninitialised_global() {
  float *out = device_floats(1), *in = nullptr;
  cudaMalloc(&in, sizeof(float));
  copy_float<<<1, 1>>>(out, in);
  demand_right(!std::isnan(first_of(out)));
}
__global__ void fetch(float* out, const float* in, bool wait) {
  __shared__ __align__(16) float buffer[4 * kThreads];
  cp_async_16(&buffer[4 * threadIdx.x], in + 4 * threadIdx.x);
  cp_async_commit_group();
  if (wait) cp_async_wait_group<0>();
  __syncthreads();
  out[threadIdx.x] = buffer[4 * threadIdx.x];
}
void missing_cp_async_wait() {
  float* out = device_floats(kThreads);
  fetch<<<1, kThreads>>>(out, device_floats(4 * kThreads), false);
  demand_right(first_of(out) == 1);
}
__global__ void refill(float* out, const float* in) {
  __shared__ __align__(16) float buffer[4 * kThreads];
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    cp_async_16(&buffer[4 * threadIdx.x],
                in + 4 * (threadIdx.x + round * kThreads));  // others may still read: a barrier is missing
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();
    sum += buffer[4 * (kThreads - 1 - threadIdx.x)];
  }
  out[threadIdx.x] = sum;
}
void missing_barrier_before_cp_async() {
  float* out = device_floats(kThreads);
  float* in = device_floats(8 * kThreads);
  cudaMemset(in, 0, 4 * kThreads * sizeof(float));  // the first round adds 0, the second 1
  refill<<<1, kThreads>>>(out, in);
  std::vector<float> got(kThreads);
  cudaMemcpy(got.data(), out, sizeof(float) * kThreads, cudaMemcpyDeviceToHost);
  bool right = true;
  for (const float value : got) right = right && value == 1;
  demand_right(right);
}
__global__ void misaligned_fetch(const float* in) {
  __shared__ __align__(16) float buffer[8];
  cp_async_16(&buffer[1], in);
}
void misaligned_cp_async() {
  misaligned_fetch<<<1, 1>>>(device_floats(8));
  cudaDeviceSynchronize();
}
__global__ void load_matrix_rows(float* out) {
  __shared__ __align__(16) float buffer[32];
  std::uint32_t r[1];
  ldmatrix_x1(r, &buffer[threadIdx.x % 8 * 8]);  // 8 rows of 16 bytes take 32 floats, not 64
  out[threadIdx.x] = r[0];
}
void ldmatrix_beyond_end() {
  load_matrix_rows<<<1, 32>>>(device_floats(32));
  cudaDeviceSynchronize();
}

// ---- between blocks ----
__global__ void accumulate(float* total, const float* in) { *total += in[blockIdx.x]; }
void non_atomic_accumulation() {
  float* total = device_floats(1);
  accumulate<<<4, 1>>>(total, device_floats(4));
  cudaDeviceSynchronize();
}
__global__ void read_other_block(float* data) { data[blockIdx.x] = data[(blockIdx.x + 1) % gridDim.x] + 1; }
void block_reads_another_blocks_result() {
  float* data = device_floats(4);
  read_other_block<<<4, 1>>>(data);
  demand_right(first_of(data) == 2);
}
__global__ void last_block_sums(float* total, unsigned* count, float* parts) {
  parts[blockIdx.x] = 1;
  // here __threadfence() is missing
  if (atomicAdd(count, 1u) == gridDim.x - 1) {
    *total = 0;
    for (int i = 0; i < 4; ++i) *total += parts[i];
  }
}
void missing_threadfence() {
  auto* count = reinterpret_cast<unsigned*>(device_floats(1, 0));
  last_block_sums<<<4, 1>>>(device_floats(1), count, device_floats(4));
  cudaDeviceSynchronize();
}

__global__ void sums_in_turn(float* total, unsigned* ticket, unsigned* turn) {
  __shared__ unsigned mine;
  if (threadIdx.x == 0) {
    mine = atomicAdd(ticket, 1u);
    while (atomicAdd(turn, 0u) != mine) __nanosleep(10);
    __threadfence();
  }
  __syncthreads();
  total[threadIdx.x] += 1;
  // here __syncthreads() is missing
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(turn, 1u);
  }
}
void turn_ends_before_barrier() {
  auto* counters = reinterpret_cast<unsigned*>(device_floats(2, 0));
  sums_in_turn<<<2, kThreads>>>(device_floats(kThreads), counters, counters + 1);
  cudaDeviceSynchronize();
}
__global__ void all_blocks_meet(unsigned* count) {
  atomicAdd(count, 1u);
  while (atomicAdd(count, 0u) != gridDim.x) __nanosleep(10);
}
void blocks_wait_for_each_other() {
  all_blocks_meet<<<2, 1>>>(reinterpret_cast<unsigned*>(device_floats(1, 0)));
  cudaDeviceSynchronize();
}

// ---- host memory ----
__global__ void read_through(float* out, const float* const* in) { out[0] = **in; }
void host_pointer_inside_device_memory() {
  static float host_value = 1;
  std::vector<float> on_heap(1, 1.0f);
  const float* pointer = on_heap.data();
  const float** device = nullptr;
  cudaMalloc(&device, sizeof pointer);
  cudaMemcpy(device, &pointer, sizeof pointer, cudaMemcpyHostToDevice);
  read_through<<<1, 1>>>(device_floats(1), device);
  cudaDeviceSynchronize();
  static_cast<void>(host_value);
}
__global__ void trap() { __trap(); }
void trapping_kernel() {
  trap<<<1, 1>>>();
  cudaDeviceSynchronize();
}

}  // namespace

std::vector<Fault> kernel_faults() {
  const Notice bounds = always({"out-of-bounds", "sanitizer"});
  const Notice shared_bounds = always({"shared-out-of-bounds", "sanitizer"});
  const Notice barrier = always({"barrier-divergence"});
  const Notice wrong = always({"wrong-result"});
  const Notice wrong_sometimes = sometimes({"wrong-result"});
  const Notice block_race = always({"race-within-block"});
  return {
      {"global-beyond-end", global_beyond_end, bounds, bounds, bounds},
      {"global-far-beyond-end", global_far_beyond_end, bounds, bounds, bounds},
      {"global-before-begin", global_before_begin, bounds, bounds, bounds},
      {"shared-beyond-end", shared_beyond_end, shared_bounds, shared_bounds, shared_bounds},
      {"dynamic-shared-beyond-end", dynamic_beyond_end, shared_bounds, shared_bounds, shared_bounds},
      {"misaligned-vector", misaligned_vector, never(), always({"sanitizer"}), never()},
      {"missing-first-barrier", missing_first_barrier, wrong_sometimes, wrong_sometimes,
       always({"race-within-block", "uninitialised-shared"})},
      {"missing-second-barrier", missing_second_barrier, wrong_sometimes, wrong_sometimes, block_race},
      {"missing-syncwarp", missing_syncwarp, wrong_sometimes, wrong_sometimes,
       always({"race-within-block", "uninitialised-shared"})},
      {"divergent-barrier", divergent_barrier, barrier, barrier, barrier},
      {"barrier-without-exited-threads", barrier_without_exited_threads, barrier, barrier, barrier},
      {"shuffle-without-half-the-lanes", shuffle_without_half_the_lanes, always({"deadlock", "absent-lanes"}),
       always({"deadlock", "absent-lanes"}), always({"deadlock", "absent-lanes"})},
      {"shuffle-from-absent-lane", shuffle_from_absent_lane, always({"absent-lanes"}), always({"absent-lanes"}),
       always({"absent-lanes"})},
      {"divergent-warp", divergent_warp, always({"warp-divergence"}), always({"warp-divergence"}),
       always({"warp-divergence"})},
      {"mask-without-caller", mask_without_caller, always({"warp-mask"}), always({"warp-mask"}), always({"warp-mask"})},
      {"thread-waits-for-ever", thread_waits_for_ever, always({"deadlock"}), always({"deadlock"}),
       always({"deadlock"})},
      {"uninitialised-shared", uninitialised_shared, wrong, wrong, always({"uninitialised-shared"})},
      {"uninitialised-global", uninitialised_global, wrong, wrong, always({"uninitialised-global"})},
      {"missing-cp-async-wait", missing_cp_async_wait, wrong, wrong, always({"cp-async-wait"})},
      {"missing-barrier-before-cp-async", missing_barrier_before_cp_async, wrong_sometimes, wrong_sometimes,
       block_race},
      {"misaligned-cp-async", misaligned_cp_async, always({"misaligned"}), always({"misaligned"}),
       always({"misaligned"})},
      {"ldmatrix-beyond-end", ldmatrix_beyond_end, shared_bounds, shared_bounds,
       always({"shared-out-of-bounds", "uninitialised-shared"})},
      {"non-atomic-accumulation", non_atomic_accumulation, never(), never(), always({"race-between-blocks"})},
      {"block-reads-another-blocks-result", block_reads_another_blocks_result, wrong_sometimes, wrong_sometimes,
       always({"race-between-blocks"})},
      {"missing-threadfence", missing_threadfence, never(), never(), always({"race-between-blocks"})},
      {"turn-ends-before-barrier", turn_ends_before_barrier, never(), never(), always({"race-between-blocks"})},
      {"blocks-wait-for-each-other", blocks_wait_for_each_other, always({"spin"}), always({"spin"}), always({"spin"})},
      {"host-pointer-inside-device-memory", host_pointer_inside_device_memory, never(), never(),
       always({"host-pointer"})},
      {"trap", trapping_kernel, always({"trap"}), always({"trap"}), always({"trap"})},
  };
}

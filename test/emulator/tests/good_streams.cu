// Known-good host code: memory, streams, events, counters.
#include <cuda_runtime.h>

#include <cstring>
#include <vector>

#include "counters.h"
#include "device_properties.h"
#include "good.h"
#include "settings.h"

namespace {

__global__ void fill(float* out, float value, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}
template <int kPadding>
__global__ void read_columns(float* out) {
  __shared__ float tile[32][32 + kPadding];
  for (int row = 0; row < 32; ++row) tile[row][threadIdx.x] = 1;
  __syncthreads();
  float sum = 0;
  for (int column = 0; column < 32; ++column) sum += tile[threadIdx.x][column];
  out[threadIdx.x] = sum;
}
__global__ void reverse_vectors(float4* out) {
  __shared__ float4 buffer[32];
  buffer[threadIdx.x] = make_float4(1, 2, 3, 4);
  __syncthreads();
  out[threadIdx.x] = buffer[31 - threadIdx.x];
}
__global__ void add(float* out, const float* in, float value, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + value;
}
constexpr int kN = 200;  // at least 32 float4
constexpr std::size_t kBytes = kN * sizeof(float);

float* device_floats() {
  float* pointer = nullptr;
  DEMAND(cudaMalloc(&pointer, kBytes) == cudaSuccess);
  return pointer;
}
float first_of(const float* device) {
  float value = 0;
  DEMAND(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost) == cudaSuccess);
  return value;
}

}  // namespace

void memory_calls() {
  std::vector<float> host(kN);
  for (int i = 0; i < kN; ++i) host[i] = static_cast<float>(i);
  float *a = device_floats(), *b = device_floats();
  cudaMemcpy(a, host.data(), kBytes, cudaMemcpyDefault);
  cudaMemcpy(b, a, kBytes, cudaMemcpyDeviceToDevice);
  // A 10 x 10 corner of a 20 x 10 matrix.
  std::vector<float> corner(100);
  cudaMemcpy2D(corner.data(), 10 * sizeof(float), b, 20 * sizeof(float), 10 * sizeof(float), 10,
               cudaMemcpyDeviceToHost);
  for (int i = 0; i < 100; ++i) DEMAND(corner[i] == static_cast<float>(i / 10 * 20 + i % 10));
  cudaMemset2DAsync(b, 20 * sizeof(float), 0, 10 * sizeof(float), 10, nullptr);
  DEMAND(first_of(b) == 0 && first_of(b + 10) == 10);
  // A source in pageable memory may be reused at once.
  cudaMemcpyAsync(b, host.data(), kBytes, cudaMemcpyHostToDevice, nullptr);
  host[0] = 77;
  DEMAND(first_of(b) == 0);
  cudaPointerAttributes attributes{};
  cudaPointerGetAttributes(&attributes, b + 5);
  DEMAND(attributes.type == cudaMemoryTypeDevice);
  cudaPointerGetAttributes(&attributes, host.data());
  DEMAND(attributes.type == cudaMemoryTypeUnregistered);
  // One past the end is a legal argument; so is null; so is a launch that does not touch them.
  fill<<<1, 32>>>(b + kN, 1, 0);
  fill<<<1, 32>>>(nullptr, 1, 0);
  cudaFree(a);
  cudaFree(b);
  cudaFree(nullptr);
  size_t free_bytes = 0, total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  float* huge = nullptr;
  DEMAND(cudaMalloc(&huge, total + 1) == cudaErrorMemoryAllocation && huge == nullptr);
  DEMAND(cudaGetLastError() == cudaErrorMemoryAllocation);
}

// The legacy default stream waits for blocking streams and they for it; events order the others.
void stream_order() {
  float *a = device_floats(), *b = device_floats(), *c = device_floats();
  cudaStream_t blocking = nullptr, free_stream = nullptr;
  cudaStreamCreate(&blocking);
  cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking);
  cudaEvent_t ready = nullptr;
  cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
  for (int round = 0; round < 5; ++round) {
    fill<<<2, 128>>>(a, static_cast<float>(round), kN);
    add<<<2, 128, 0, blocking>>>(b, a, 10, kN);
    add<<<2, 128>>>(c, b, 100, kN);
    cudaEventRecord(ready);
    cudaStreamWaitEvent(free_stream, ready);
    add<<<2, 128, 0, free_stream>>>(c, c, 1000, kN);
    cudaEventRecord(ready, free_stream);  // recorded again: later waits are for this one
    cudaStreamWaitEvent(nullptr, ready, 0);
    DEMAND(first_of(c) == static_cast<float>(1110 + round));
  }
  int calls[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    cudaLaunchHostFunc(
        free_stream, [](void* counter) { ++*static_cast<int*>(counter); }, &calls[i]);
  }
  float* temporary = nullptr;
  cudaMallocAsync(reinterpret_cast<void**>(&temporary), kBytes, free_stream);
  fill<<<2, 128, 0, free_stream>>>(temporary, 1, kN);
  cudaFreeAsync(temporary, free_stream);
  cudaStreamDestroy(free_stream);  // what was issued still runs
  cudaDeviceSynchronize();
  DEMAND(calls[0] == 1 && calls[1] == 1);
  cudaStreamDestroy(blocking);
  cudaEventDestroy(ready);
  cudaFree(a);
  cudaFree(b);
  cudaFree(c);
}

// Two pinned buffers, refilled by the host when the event after their last use has passed.
void staging_ring() {
  float *pinned[2], *losses = nullptr;
  float *device = device_floats(), *result = device_floats();
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEvent_t used[2];
  for (int i = 0; i < 2; ++i) {
    cudaMallocHost(&pinned[i], kBytes);
    cudaEventCreate(&used[i]);
  }
  cudaMallocHost(&losses, 6 * sizeof(float));
  for (int step = 0; step < 6; ++step) {
    const int slot = step % 2;
    cudaEventSynchronize(used[slot]);
    for (int i = 0; i < kN; ++i) pinned[slot][i] = static_cast<float>(step);
    cudaMemcpyAsync(device, pinned[slot], kBytes, cudaMemcpyHostToDevice, stream);
    cudaEventRecord(used[slot], stream);
    add<<<2, 128, 0, stream>>>(result, device, 0.5f, kN);
    cudaMemcpyAsync(losses + step, result, sizeof(float), cudaMemcpyDeviceToHost, stream);
  }
  cudaStreamSynchronize(stream);
  for (int step = 0; step < 6; ++step) DEMAND(losses[step] == static_cast<float>(step) + 0.5f);
  for (int i = 0; i < 2; ++i) {
    cudaFreeHost(pinned[i]);
    cudaEventDestroy(used[i]);
  }
  cudaFreeHost(losses);
  cudaStreamDestroy(stream);
  cudaFree(device);
  cudaFree(result);
}

void event_queries() {
  float* a = device_floats();
  cudaEvent_t start = nullptr, end = nullptr, untimed = nullptr;
  cudaEventCreate(&start);
  cudaEventCreate(&end);
  cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming);
  DEMAND(cudaEventQuery(start) == cudaSuccess);  // never recorded
  cudaEventRecord(start);
  fill<<<2, 128>>>(a, 1, kN);
  cudaEventRecord(end);
  float milliseconds = -1;
  DEMAND(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorNotReady);
  while (cudaEventQuery(end) == cudaErrorNotReady) {
  }
  DEMAND(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess && milliseconds >= 0);
  DEMAND(cudaEventElapsedTime(&milliseconds, start, untimed) == cudaErrorInvalidResourceHandle);
  DEMAND(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  while (cudaStreamQuery(nullptr) == cudaErrorNotReady) {
  }
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  cudaEventDestroy(untimed);
  cudaFree(a);
}

// Per warp: 32 stores of one pass each, 32 loads of one pass each or of 32.
void bank_conflicts() {
  if (!emulator::race::kEnabled) return;
  emulator::settings().bank_conflicts = true;
  float* a = device_floats();
  read_columns<0><<<1, 32>>>(a);
  read_columns<1><<<1, 32>>>(a);
  reverse_vectors<<<1, 32>>>(reinterpret_cast<float4*>(a));
  cudaDeviceSynchronize();
  emulator::settings().bank_conflicts = false;
  const auto& use = emulator::bank_use();
  DEMAND(use.at("read_columns<0>").passes == 32 + 32 * 32 && use.at("read_columns<0>").conflicts == 31 * 32);
  DEMAND(use.at("read_columns<1>").passes == 32 + 32 && use.at("read_columns<1>").conflicts == 0);
  DEMAND(use.at("reverse_vectors").passes == 8 && use.at("reverse_vectors").conflicts == 0);
  cudaFree(a);
}

void counters_and_properties() {
  const emulator::Counters before = emulator::counters();
  float* a = device_floats();
  fill<<<2, 128>>>(a, 1, kN);
  cudaMemsetAsync(a, 0, kBytes);
  DEMAND(emulator::counters().host_synchronisations == before.host_synchronisations);
  cudaDeviceSynchronize();
  cudaFree(a);
  const emulator::Counters& after = emulator::counters();
  DEMAND(after.allocations == before.allocations + 1 && after.frees == before.frees + 1);
  DEMAND(after.launches == before.launches + 1 && after.copies == before.copies + 1);
  DEMAND(after.host_synchronisations == before.host_synchronisations + 2);

  cudaDeviceProp& properties = emulator::device_properties();
  const cudaDeviceProp saved = properties;
  properties.major = 8;
  properties.sharedMemPerBlockOptin = 99 << 10;
  int value = 0;
  DEMAND(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && value == 8);
  DEMAND(cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10) == cudaErrorInvalidValue);
  DEMAND(cudaGetLastError() == cudaErrorInvalidValue);
  properties = saved;
  DEMAND(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, fill, 256, 0) == cudaSuccess && value == 8);
  int device = -1;
  DEMAND(cudaSetDevice(5) == cudaErrorInvalidDevice && cudaGetLastError() == cudaErrorInvalidDevice);
  DEMAND(cudaGetDevice(&device) == cudaSuccess && device == 0);
}

// Two streams and pinned staging: one stream copies chunk i+1 to the device while the other computes on chunk i and
// copies the result back. Events order the two: a slot is refilled only when its computation is done.
#include <cstring>

#include "check.cuh"

constexpr int kChunk = 1000;
constexpr int kChunks = 7;
constexpr int kSlots = 2;

__global__ void scale_add(float* out, const float* in, float scale, float add, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = scale * in[i] + add;
}

int main() {
  const std::size_t n = static_cast<std::size_t>(kChunk) * kChunks;
  const std::size_t bytes = kChunk * sizeof(float);
  const std::vector<float> in = random_values(n, 3);
  float *pinned_in, *pinned_out;
  CHECK(cudaMallocHost(&pinned_in, n * sizeof(float)));
  CHECK(cudaMallocHost(&pinned_out, n * sizeof(float)));
  std::memcpy(pinned_in, in.data(), n * sizeof(float));
  cudaStream_t copy, compute;
  cudaEvent_t copied[kSlots], computed[kSlots];
  CHECK(cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
  for (int s = 0; s < kSlots; ++s) {
    CHECK(cudaEventCreateWithFlags(&copied[s], cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&computed[s], cudaEventDisableTiming));
  }
  {
    DeviceArray<float> device_in(kSlots * kChunk), device_out(kSlots * kChunk);
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int slot = chunk % kSlots;
      float* slot_in = device_in.data + slot * kChunk;
      float* slot_out = device_out.data + slot * kChunk;
      CHECK(cudaStreamWaitEvent(copy, computed[slot], 0));  // never recorded at first: no wait
      CHECK(cudaMemcpyAsync(slot_in, pinned_in + chunk * kChunk, bytes, cudaMemcpyHostToDevice, copy));
      CHECK(cudaEventRecord(copied[slot], copy));
      CHECK(cudaStreamWaitEvent(compute, copied[slot], 0));
      scale_add<<<(kChunk + 127) / 128, 128, 0, compute>>>(slot_out, slot_in, 2.0f, static_cast<float>(chunk), kChunk);
      CHECK(cudaGetLastError());
      CHECK(cudaEventRecord(computed[slot], compute));
      CHECK(cudaMemcpyAsync(pinned_out + chunk * kChunk, slot_out, bytes, cudaMemcpyDeviceToHost, compute));
    }
    CHECK(cudaStreamSynchronize(compute));
    for (std::size_t i = 0; i < n; ++i) {
      demand_close(pinned_out[i], 2.0 * in[i] + static_cast<double>(i / kChunk), 1e-6, "out", i);
    }
  }
  for (int s = 0; s < kSlots; ++s) {
    CHECK(cudaEventDestroy(copied[s]));
    CHECK(cudaEventDestroy(computed[s]));
  }
  CHECK(cudaStreamDestroy(copy));
  CHECK(cudaStreamDestroy(compute));
  CHECK(cudaFreeHost(pinned_in));
  CHECK(cudaFreeHost(pinned_out));
  std::printf("pipeline: right\n");
}

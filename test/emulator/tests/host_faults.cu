// Faults of host code: memory, copies, launches, streams, events.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cmath>
#include <vector>

#include "faults.h"
#include "stream.h"

namespace {

__global__ void fill(float* out, float value, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}
__global__ void add_one(float* out, const float* in, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + 1;
}
constexpr int kN = 100;

float* device_floats(int n = kN) {
  float* pointer = nullptr;
  cudaMalloc(&pointer, n * sizeof(float));
  cudaMemset(pointer, 0, n * sizeof(float));
  cudaDeviceSynchronize();  // non-blocking streams do not wait for the fill
  return pointer;
}
cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}
float* pinned_floats(int n = kN) {
  float* pointer = nullptr;
  cudaMallocHost(&pointer, n * sizeof(float));
  for (int i = 0; i < n; ++i) pointer[i] = 0;
  return pointer;
}

// ---- memory ----
void host_reads_device_memory() { demand_right(*static_cast<volatile float*>(device_floats()) == 0); }
void host_writes_device_memory() { *static_cast<volatile float*>(device_floats()) = 1; }
void host_pointer_as_argument() {
  std::vector<float> host(kN);
  fill<<<1, 128>>>(host.data(), 1, kN);
  cudaDeviceSynchronize();
}
void freed_pointer_as_argument() {
  float* pointer = device_floats();
  cudaFree(pointer);
  fill<<<1, 128>>>(pointer, 1, kN);
  cudaDeviceSynchronize();
}
void freed_while_in_use() {
  float* pointer = device_floats();
  cudaStream_t stream = new_stream();
  cudaStream_t other = new_stream();
  fill<<<1, 128, 0, stream>>>(pointer, 1, kN);
  cudaFreeAsync(pointer, other);
  cudaDeviceSynchronize();
}
void freed_twice() {
  float* pointer = device_floats();
  cudaFree(pointer);
  cudaFree(pointer);
}
void freed_in_the_middle() { cudaFree(device_floats() + 1); }

// ---- copies ----
void copy_beyond_end() {
  std::vector<float> host(2 * kN);
  cudaMemcpy(device_floats(), host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);
}
void copy_in_wrong_direction() {
  std::vector<float> host(kN);
  cudaMemcpy(device_floats(), host.data(), kN * sizeof(float), cudaMemcpyDeviceToHost);
}
void fill_of_host_memory() {
  std::vector<float> host(kN);
  cudaMemset(host.data(), 0, kN * sizeof(float));
}

// ---- launches ----
void too_many_threads() { fill<<<1, 1025>>>(device_floats(), 1, kN); }
void empty_grid() { fill<<<0, 128>>>(device_floats(), 1, kN); }
void dynamic_shared_without_permission() { fill<<<1, 128, 50 << 10>>>(device_floats(), 1, kN); }
__global__ void too_much_shared(float* out) {
  __shared__ float buffer[13 << 10];
  buffer[0] = 1;
  out[0] = buffer[0];
}
void static_shared_beyond_limit() {
  too_much_shared<<<1, 1>>>(device_floats());
  cudaDeviceSynchronize();
}
void device_function_on_host() { __syncthreads(); }

// ---- order ----
void missing_stream_wait() {
  float *a = device_floats(), *b = device_floats();
  fill<<<1, 128, 0, new_stream()>>>(a, 1, kN);
  add_one<<<1, 128, 0, new_stream()>>>(b, a, kN);  // waits for nothing
  cudaDeviceSynchronize();
  float got = 0;
  cudaMemcpy(&got, b, sizeof got, cudaMemcpyDeviceToHost);
  demand_right(got == 2);
}
void copy_overwrites_what_a_kernel_reads() {
  float *a = device_floats(), *b = device_floats(), *host = pinned_floats();
  cudaStream_t compute = new_stream(), copy = new_stream();
  fill<<<1, 128, 0, compute>>>(a, 1, kN);
  add_one<<<1, 128, 0, compute>>>(b, a, kN);
  cudaMemcpyAsync(a, host, kN * sizeof(float), cudaMemcpyHostToDevice, copy);
  cudaDeviceSynchronize();
  float got = 0;
  cudaMemcpy(&got, b, sizeof got, cudaMemcpyDeviceToHost);
  demand_right(got == 2);
}
void read_before_synchronisation() {
  float *a = device_floats(), *host = pinned_floats();
  cudaStream_t stream = new_stream();
  fill<<<1, 128, 0, stream>>>(a, 1, kN);
  cudaMemcpyAsync(host, a, kN * sizeof(float), cudaMemcpyDeviceToHost, stream);
  demand_right(host[0] == 1);
}
// The copy has run by the time the host looks, but only by luck: another stream was waited for.
void read_after_synchronising_another_stream() {
  float *a = device_floats(), *b = device_floats(), *host = pinned_floats();
  cudaStream_t stream = new_stream(), other = new_stream();
  cudaMemcpyAsync(host, a, kN * sizeof(float), cudaMemcpyDeviceToHost, stream);
  fill<<<1, 128, 0, other>>>(b, 1, kN);
  cudaStreamSynchronize(other);
  demand_right(host[0] == 0);
}
void pinned_source_reused_too_early() {
  float *a = device_floats(), *host = pinned_floats();
  cudaStream_t stream = new_stream();
  host[0] = 1;
  cudaMemcpyAsync(a, host, kN * sizeof(float), cudaMemcpyHostToDevice, stream);
  host[0] = 2;
  cudaDeviceSynchronize();
  float got = 0;
  cudaMemcpy(&got, a, sizeof got, cudaMemcpyDeviceToHost);
  demand_right(got == 1);
}
void runtime_call_in_host_function() {
  cudaLaunchHostFunc(
      nullptr, [](void*) { cudaDeviceSynchronize(); }, nullptr);
  cudaDeviceSynchronize();
}
void host_function_touches_device_memory() {
  cudaLaunchHostFunc(
      nullptr, [](void* pointer) { *static_cast<volatile float*>(pointer) = 1; }, device_floats());
  cudaDeviceSynchronize();
}
void destroyed_stream() {
  cudaStream_t stream = new_stream();
  cudaStreamDestroy(stream);
  fill<<<1, 128, 0, stream>>>(device_floats(), 1, kN);
}
void operation_that_never_ends() {
  emulator::enqueue(nullptr, "ncclRecv(4 x float from 1)", [] { return false; });
  cudaDeviceSynchronize();
}

// Another rank's answer is on its way, and may depend on what comes here.
void message_for_ever() {
  emulator::enqueue_message(new_stream(), "ncclRecv(4 x float from 1)", [] { return false; });
}
void first_launch_behind_a_message() {
  float* numbers = device_floats();
  message_for_ever();
  fill<<<1, 128, 0, new_stream()>>>(numbers, 1, kN);
}
void first_product_behind_a_message() {
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  float* matrix = device_floats();
  message_for_ever();
  const float one = 1, zero = 0;
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, matrix, 4, matrix, 4, &zero, matrix + 16, 4);
}
void accumulating_product_behind_a_message() {
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  float* matrix = device_floats();
  const float one = 1, zero = 0;
  const auto multiply = [&](const float* beta) {
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, matrix, 4, matrix, 4, beta, matrix + 16, 4);
  };
  multiply(&zero);
  cudaDeviceSynchronize();
  message_for_ever();
  multiply(&zero);  // known
  multiply(&one);   // another kernel
}
void launches_that_fill_the_queue() {
  float* numbers = device_floats();
  fill<<<1, 128>>>(numbers, 1, kN);
  cudaDeviceSynchronize();
  message_for_ever();
  cudaStream_t stream = new_stream();
  for (int i = 0; i < 2000; ++i) fill<<<1, 128, 0, stream>>>(numbers, 1, kN);
}
void allocation_behind_a_message() {
  message_for_ever();
  device_floats();
}

}  // namespace

std::vector<Fault> host_faults() {
  const auto everywhere = [](const char* name, void (*run)(), std::vector<std::string> names) {
    return Fault{name, run, always(names), always(names), always(names)};
  };
  const Notice wrong = always({"wrong-result"});
  const Notice wrong_sometimes = sometimes({"wrong-result"});
  const Notice unordered = always({"race-between-operations"});
  return {
      everywhere("host-reads-device-memory", host_reads_device_memory, {"host-access"}),
      everywhere("host-writes-device-memory", host_writes_device_memory, {"host-access"}),
      everywhere("host-pointer-as-argument", host_pointer_as_argument, {"host-pointer"}),
      everywhere("freed-pointer-as-argument", freed_pointer_as_argument, {"use-after-free"}),
      {"freed-while-in-use", freed_while_in_use, sometimes({"use-after-free"}), sometimes({"use-after-free"}),
       sometimes({"use-after-free", "out-of-bounds"})},
      everywhere("freed-twice", freed_twice, {"invalid-free"}),
      everywhere("freed-in-the-middle", freed_in_the_middle, {"invalid-free"}),
      everywhere("copy-beyond-end", copy_beyond_end, {"memory-range"}),
      everywhere("copy-in-wrong-direction", copy_in_wrong_direction, {"copy-direction"}),
      everywhere("fill-of-host-memory", fill_of_host_memory, {"host-pointer"}),
      everywhere("too-many-threads", too_many_threads, {"launch-limits"}),
      everywhere("empty-grid", empty_grid, {"launch-limits"}),
      everywhere("dynamic-shared-without-permission", dynamic_shared_without_permission, {"shared-memory-limit"}),
      everywhere("static-shared-beyond-limit", static_shared_beyond_limit, {"shared-memory-limit"}),
      everywhere("device-function-on-host", device_function_on_host, {"device-function-on-host"}),
      {"missing-stream-wait", missing_stream_wait, wrong_sometimes, wrong_sometimes, unordered},
      {"copy-overwrites-what-a-kernel-reads", copy_overwrites_what_a_kernel_reads, wrong_sometimes, wrong_sometimes,
       unordered},
      {"read-before-synchronisation", read_before_synchronisation, wrong, wrong, wrong},
      {"read-after-synchronising-another-stream", read_after_synchronising_another_stream, wrong_sometimes,
       wrong_sometimes, always({"wrong-result", "host-access-before-synchronisation"})},
      {"pinned-source-reused-too-early", pinned_source_reused_too_early, wrong, wrong, wrong},
      everywhere("runtime-call-in-host-function", runtime_call_in_host_function, {"call-inside-operation"}),
      everywhere("host-function-touches-device-memory", host_function_touches_device_memory, {"host-access"}),
      everywhere("destroyed-stream", destroyed_stream, {"invalid-stream"}),
      everywhere("first-launch-behind-a-message", first_launch_behind_a_message, {"first-use"}),
      everywhere("first-product-behind-a-message", first_product_behind_a_message, {"first-use"}),
      everywhere("accumulating-product-behind-a-message", accumulating_product_behind_a_message, {"first-use"}),
      everywhere("launches-that-fill-the-queue", launches_that_fill_the_queue, {"launch-queue"}),
      everywhere("allocation-behind-a-message", allocation_behind_a_message, {"first-use"}),
      everywhere("operation-that-never-ends", operation_that_never_ends, {"watchdog"}),
  };
}

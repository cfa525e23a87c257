// Memory, workspace and waiting of the cuda device, and how one is made.
#include "kernels/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <type_traits>

#include "kernels/cuda/check.h"
#include "kernels/cuda/compute_stream.h"
#include "kernels/cuda/gpu_memory.h"
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TRAIN_GPT_NVTX(call) call
#else
#define TRAIN_GPT_NVTX(call) static_cast<void>(0)
#endif

namespace train_gpt {
namespace cuda {
template <typename Float>
void CudaDevice<Float>::begin_range([[maybe_unused]] const char* name) {
  TRAIN_GPT_NVTX(nvtxRangePushA(name));
}

template <typename Float>
void CudaDevice<Float>::end_range() {
  TRAIN_GPT_NVTX(nvtxRangePop());
}

template <typename Float>
std::string CudaDevice<Float>::describe() const {
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu_));
  int runtime = 0;
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  char text[512];
  std::snprintf(text, sizeof text, "cuda: GPU %d, %s, %d multiprocessors, %.0f GiB, CUDA %d.%d, cuBLASLt %zu, %s", gpu_,
                properties.name, properties.multiProcessorCount,
                static_cast<double>(properties.totalGlobalMem) / (1 << 30), runtime / 1000, runtime % 1000 / 10,
                cublasLtGetVersion(), precision() == Precision::bf16 ? "bf16" : "fp32");
  return text;
}

template <typename Float>
Arithmetic CudaDevice<Float>::arithmetic() const {
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu_));
  return {.library = "cuBLASLt " + std::to_string(cublasLtGetVersion()),
          .processor = std::string(properties.name) + " (compute capability " + std::to_string(properties.major) + "." +
                       std::to_string(properties.minor) + ")",
          .precision = precision() == Precision::bf16 ? "bf16" : "fp32"};
}

template <typename Float>
void* CudaDevice<Float>::allocate(std::int64_t bytes) {
  if (bytes < 0) throw std::invalid_argument("cannot allocate " + std::to_string(bytes) + " bytes");
  void* pointer = nullptr;
  const cudaError_t error = cudaMalloc(&pointer, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free_bytes = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
    throw std::runtime_error("out of memory: GPU " + std::to_string(gpu_) + " cannot allocate " +
                             std::to_string(bytes) + " bytes; " + std::to_string(free_bytes) + " of " +
                             std::to_string(total) + " are free");
  }
  CUDA_CHECK(error);
  return pointer;
}

template <typename Float>
std::int64_t CudaDevice<Float>::workspace_bytes(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH,
                                                std::int64_t /*Vp*/) const {
  return cuda_workspace_bytes(precision(), B, T, C, NH);
}

template <typename Float>
void CudaDevice<Float>::use_workspace(void* workspace, std::int64_t bytes) {
  if (workspace == nullptr) {  // none from here on
    products_.use_workspace(nullptr);
    scratch_ = nullptr;
    scratch_bytes_ = 0;
    return;
  }
  if (bytes < MatrixProducts::kWorkspaceBytes) {
    throw std::logic_error("a workspace of " + std::to_string(bytes) + " bytes is less than workspace_bytes says");
  }
  products_.use_workspace(workspace);
  scratch_ = static_cast<char*>(workspace) + MatrixProducts::kWorkspaceBytes;
  scratch_bytes_ = bytes - MatrixProducts::kWorkspaceBytes;
}

template <typename Float>
void CudaDevice<Float>::wait_for(cudaEvent_t event) const {
  for (;;) {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) CUDA_CHECK(status);
    (void)cudaGetLastError();  // "not ready" is not an error for a later check to find
    if (!progress_) {
      CUDA_CHECK(cudaEventSynchronize(event));
      return;
    }
    progress_();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

template <typename Float>
float* CudaDevice<Float>::scratch_of(std::int64_t bytes) const {
  if (scratch_bytes_ < bytes) {
    throw std::logic_error("the cuda device has scratch of " + std::to_string(scratch_bytes_) + " bytes and needs " +
                           std::to_string(bytes) + " (workspace_bytes, use_workspace)");
  }
  return reinterpret_cast<float*>(scratch_);
}

template class CudaDevice<float>;
template class CudaDevice<bf16>;

void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                           cudaGetErrorString(error));
}

void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                           cublasLtGetStatusString(status));
}

bool is_cuda(const Device& device) { return dynamic_cast<const WithStream*>(&device) != nullptr; }

cudaStream_t compute_stream(const Device& device) { return dynamic_cast<const WithStream&>(device).stream(); }

std::int64_t operations_enqueued(const Device& device) { return dynamic_cast<const WithStream&>(device).enqueued(); }

}  // namespace cuda

GpuCount count_gpus() {
  GpuCount result;
  int count = 0;  // an error leaves it untouched
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) (void)cudaGetLastError();
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    result.reason = visible == nullptr ? "this machine has no GPU"
                                       : "no GPU is visible with CUDA_VISIBLE_DEVICES=" + std::string(visible);
  } else if (error == cudaErrorInsufficientDriver) {
    result.reason = "this machine has no NVIDIA driver, or one that is too old for the CUDA of this build";
  } else if (error != cudaSuccess) {
    result.reason = cudaGetErrorString(error);
  }
  result.count = count;
  return result;
}

std::unique_ptr<Device> make_cuda_device(Precision precision, int local_rank) {
  const GpuCount gpus = count_gpus();
  if (gpus.count == 0) throw std::invalid_argument("--device cuda: " + gpus.reason + "; use --device cpu");
  const int gpu = local_rank % gpus.count;
  CUDA_CHECK(cudaSetDevice(gpu));
  if (precision == Precision::bf16) {
    int major = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
    if (major < 8) {
      throw std::invalid_argument("--precision bf16: GPU " + std::to_string(gpu) + " has compute capability " +
                                  std::to_string(major) + ".x, and bf16 needs 8.0; use --precision fp32");
    }
    return std::make_unique<cuda::CudaDevice<cuda::bf16>>(gpu);
  }
  return std::make_unique<cuda::CudaDevice<float>>(gpu);
}

}  // namespace train_gpt

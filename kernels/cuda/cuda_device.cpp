// The cuda device: memory, order, time, and the functions of operations.h and matmul.h on one stream.
#include "kernels/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <type_traits>

#include "kernels/cuda/check.h"
#include "kernels/cuda/marks.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/staging.h"

namespace train_gpt {
namespace cuda {
namespace {

constexpr std::int64_t kAlignment = 256;
std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A stream that does not order itself after the default stream.
class Stream {
 public:
  Stream() { CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: it stands for its handle

 private:
  cudaStream_t stream_ = nullptr;
};

class WithStream : public Device {
 public:
  virtual cudaStream_t stream() const = 0;
};

template <typename Float>
class CudaDevice final : public WithStream {
 public:
  explicit CudaDevice(int gpu) : gpu_(gpu) {}

  std::string describe() const override {
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu_));
    int runtime = 0;
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    char text[512];
    std::snprintf(text, sizeof text, "cuda: GPU %d, %s, %d multiprocessors, %.0f GiB, CUDA %d.%d, cuBLASLt %zu, %s",
                  gpu_, properties.name, properties.multiProcessorCount,
                  static_cast<double>(properties.totalGlobalMem) / (1 << 30), runtime / 1000, runtime % 1000 / 10,
                  cublasLtGetVersion(), precision() == Precision::bf16 ? "bf16" : "fp32");
    return text;
  }
  Precision precision() const override { return std::is_same_v<Float, bf16> ? Precision::bf16 : Precision::fp32; }
  cudaStream_t stream() const override { return stream_; }

  void* allocate(std::int64_t bytes) override {
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
  // Waits for what may still use the memory.
  void release(void* pointer) override { cudaFree(pointer); }
  void zero(void* out, std::int64_t bytes) override {
    if (bytes > 0) CUDA_CHECK(cudaMemsetAsync(out, 0, static_cast<std::size_t>(bytes), stream_));
  }
  void copy(void* out, const void* in, std::int64_t bytes) override {
    if (bytes <= 0 || out == in) return;
    CUDA_CHECK(cudaMemcpyAsync(out, in, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream_));
  }
  void to_device(void* out, const void* host, std::int64_t bytes) override { staging_.copy(out, host, bytes, stream_); }
  void to_host(void* host, const void* in, std::int64_t bytes) override {
    staging_.fetch(host, in, bytes, stream_);
    marks_.renew_base();
  }
  void from_float(void* out, const float* in, std::int64_t n) override {
    if constexpr (std::is_same_v<Float, bf16>) {
      to_bf16(static_cast<bf16*>(out), in, n, stream_);
    } else {
      copy(out, in, n * 4);
    }
  }
  void to_float(float* out, const void* in, std::int64_t n) override {
    if constexpr (std::is_same_v<Float, bf16>) {
      to_fp32(out, static_cast<const bf16*>(in), n, stream_);
    } else {
      copy(out, in, n * 4);
    }
  }

  // cuBLASLt's part, then that of whatever operation runs. The largest of a layer: the copy of the MLP's
  // pre-activations.
  std::int64_t workspace_bytes(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH,
                               std::int64_t /*Vp*/) const override {
    const std::int64_t N = B * T;
    return MatrixProducts::kWorkspaceBytes + std::max({aligned(N * 4 * C * static_cast<std::int64_t>(sizeof(Float))),
                                                       aligned(Linear<Float>::backward_weight_scratch_bytes(N, 4 * C)),
                                                       aligned(layernorm_backward_weight_scratch_bytes(N, C)),
                                                       aligned(attention_backward_scratch_bytes(B, T, NH))});
  }
  void use_workspace(void* workspace, std::int64_t bytes) override {
    if (workspace == nullptr) {  // none from here on
      linear_.use_workspace(nullptr);
      scratch_ = nullptr;
      scratch_bytes_ = 0;
      return;
    }
    if (bytes < MatrixProducts::kWorkspaceBytes) {
      throw std::logic_error("a workspace of " + std::to_string(bytes) + " bytes is less than workspace_bytes says");
    }
    linear_.use_workspace(workspace);
    scratch_ = static_cast<char*>(workspace) + MatrixProducts::kWorkspaceBytes;
    scratch_bytes_ = bytes - MatrixProducts::kWorkspaceBytes;
  }
  void set_progress_hook(std::function<void()> hook) override { progress_ = std::move(hook); }

  Mark mark() override { return marks_.record(); }
  double time_ms(Mark mark) override {
    wait_for(marks_.event(mark));
    return marks_.time_ms(mark);
  }
  void synchronize() override {
    wait_for(marks_.event(marks_.record()));
    marks_.renew_base();
  }

  void embedding_forward(void* out, const std::int32_t* tokens, const void* wte, const void* wpe, std::int64_t B,
                         std::int64_t T, std::int64_t C) override {
    cuda::embedding_forward(low(out), tokens, low(wte), low(wpe), B, T, C, stream_);
    progress();
  }
  void embedding_backward(float* dwte, float* dwpe, const void* dout, const std::int32_t* tokens, std::int64_t B,
                          std::int64_t T, std::int64_t C) override {
    cuda::embedding_backward(dwte, dwpe, low(dout), tokens, B, T, C, stream_);
    progress();
  }

  void layernorm_forward(void* out, float* mean, float* rstd, const void* in, const void* weight, const void* bias,
                         std::int64_t N, std::int64_t C) override {
    cuda::layernorm_forward(low(out), mean, rstd, low(in), low(weight), low(bias), N, C, stream_);
    progress();
  }
  void layernorm_backward_input(void* din, const void* dout, const void* dresidual, const void* in, const float* mean,
                                const float* rstd, const void* weight, std::int64_t N, std::int64_t C) override {
    cuda::layernorm_backward_input(low(din), low(dout), low(dresidual), low(in), mean, rstd, low(weight), N, C,
                                   stream_);
    progress();
  }
  void layernorm_backward_weight(float* dweight, float* dbias, const void* dout, const void* in, const float* mean,
                                 const float* rstd, std::int64_t N, std::int64_t C) override {
    float* scratch = scratch_of(layernorm_backward_weight_scratch_bytes(N, C));
    cuda::layernorm_backward_weight(dweight, dbias, low(dout), low(in), mean, rstd, N, C, scratch, stream_);
    progress();
  }

  void matmul_forward(void* out, const void* in, const void* weight, const void* bias, std::int64_t N, std::int64_t C,
                      std::int64_t OC) override {
    linear_.forward(low(out), low(in), low(weight), low(bias), nullptr, N, C, OC, stream_);
    progress();
  }
  void matmul_gelu_forward(void* out, void* pre, const void* in, const void* weight, const void* bias, std::int64_t N,
                           std::int64_t C, std::int64_t OC) override {
    void* scratch = pre == nullptr ? scratch_of(N * OC * static_cast<std::int64_t>(sizeof(Float))) : nullptr;
    linear_.gelu_forward(low(out), low(pre), low(in), low(weight), low(bias), N, C, OC, scratch, stream_);
    progress();
  }
  void matmul_residual_forward(void* out, const void* in, const void* weight, const void* bias, const void* residual,
                               std::int64_t N, std::int64_t C, std::int64_t OC) override {
    linear_.forward(low(out), low(in), low(weight), low(bias), low(residual), N, C, OC, stream_);
    progress();
  }
  void matmul_backward_input(void* din, const void* dout, const void* weight, std::int64_t N, std::int64_t C,
                             std::int64_t OC) override {
    linear_.backward_input(low(din), low(dout), low(weight), N, C, OC, stream_);
    progress();
  }
  void matmul_gelu_backward_input(void* dpre, const void* dout, const void* weight, const void* pre, std::int64_t N,
                                  std::int64_t C, std::int64_t OC) override {
    void* scratch = dpre == pre ? scratch_of(N * C * static_cast<std::int64_t>(sizeof(Float))) : nullptr;
    linear_.gelu_backward_input(low(dpre), low(dout), low(weight), low(pre), N, C, OC, scratch, stream_);
    progress();
  }
  void matmul_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                              std::int64_t C, std::int64_t OC) override {
    weight_gradient(dweight, dbias, in, dout, /*first=*/false, N, C, OC);
  }
  void matmul_first_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                                    std::int64_t C, std::int64_t OC) override {
    weight_gradient(dweight, dbias, in, dout, /*first=*/true, N, C, OC);
  }

  void attention_forward(void* out, float* lse, const void* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                         std::int64_t NH) override {
    cuda::attention_forward(low(out), lse, low(qkv), B, T, C, NH, stream_);
    progress();
  }
  void attention_backward(void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                          std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) override {
    float* scratch = scratch_of(attention_backward_scratch_bytes(B, T, NH));
    cuda::attention_backward(low(dqkv), low(dout), low(qkv), low(out), lse, B, T, C, NH, scratch, stream_);
    progress();
  }

  void cross_entropy(float* losses, void* logits, const std::int32_t* targets, float dloss, bool with_gradient,
                     std::int64_t rows, std::int64_t V, std::int64_t Vp) override {
    cuda::cross_entropy(losses, low(logits), targets, dloss, with_gradient, rows, V, Vp, stream_);
    progress();
  }

  // In fp32 the parameters are their own low copy, where there is none of its own.
  void adamw(float* new_parameter, void* low_copy, float* m, float* v, const float* parameter, const float* gradient,
             const AdamWScalars* scalars, const AdamWConstants& constants, bool keep_moments, std::int64_t n) override {
    Float* copy = low_copy == new_parameter ? nullptr : low(low_copy);
    cuda::adamw(new_parameter, copy, m, v, parameter, gradient, scalars, constants, keep_moments, n, stream_);
    progress();
  }
  void adamw_moments(float* m, float* v, const float* gradient, const AdamWScalars* scalars,
                     const AdamWConstants& constants, std::int64_t n) override {
    cuda::adamw_moments(m, v, gradient, scalars, constants, n, stream_);
    progress();
  }
  void squared_sums(double* sums, const float* x, std::int64_t n) override { cuda::squared_sums(sums, x, n, stream_); }
  void add(float* out, const float* in, std::int64_t n) override { cuda::add(out, in, n, stream_); }

 private:
  static Float* low(void* p) { return static_cast<Float*>(p); }
  static const Float* low(const void* p) { return static_cast<const Float*>(p); }

  void weight_gradient(float* dweight, float* dbias, const void* in, const void* dout, bool first, std::int64_t N,
                       std::int64_t C, std::int64_t OC) {
    float* scratch = dbias != nullptr ? scratch_of(Linear<Float>::backward_weight_scratch_bytes(N, OC)) : nullptr;
    linear_.backward_weight(dweight, dbias, low(in), low(dout), first, N, C, OC, scratch, stream_);
    progress();
  }

  void progress() const {
    if (progress_) progress_();
  }

  // Messages move on while the host waits.
  void wait_for(cudaEvent_t event) const {
    for (;;) {
      const cudaError_t status = cudaEventQuery(event);
      if (status == cudaSuccess) return;
      if (status != cudaErrorNotReady) CUDA_CHECK(status);
      (void)cudaGetLastError();  // "not ready" is no error to be found by a later check
      if (!progress_) {
        CUDA_CHECK(cudaEventSynchronize(event));
        return;
      }
      progress_();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  float* scratch_of(std::int64_t bytes) const {
    if (scratch_bytes_ < bytes) {
      throw std::logic_error("the cuda device has scratch of " + std::to_string(scratch_bytes_) + " bytes and needs " +
                             std::to_string(bytes) + " (workspace_bytes, use_workspace)");
    }
    return reinterpret_cast<float*>(scratch_);
  }

  int gpu_;
  Stream stream_;
  Staging staging_{[this](cudaEvent_t event) { wait_for(event); }};
  Marks marks_{stream_};
  Linear<Float> linear_;
  char* scratch_ = nullptr;
  std::int64_t scratch_bytes_ = 0;
  std::function<void()> progress_;
};

}  // namespace

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

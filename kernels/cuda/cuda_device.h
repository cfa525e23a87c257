// The cuda device: memory, order, time, and the list of its operations on one stream. Float is float or bf16, the type
// of its activations. An operation is declared here once and defined in the file whose name stands above it; shapes and
// formulas are those of kernels/device.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

#include "kernels/cuda/check.h"
#include "kernels/cuda/marks.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/staging.h"
#include "kernels/device.h"

namespace train_gpt::cuda {

using bf16 = __nv_bfloat16;

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
  // Operations enqueued so far.
  virtual std::int64_t enqueued() const = 0;
};

template <typename Float>
class CudaDevice final : public WithStream {
 public:
  explicit CudaDevice(int gpu) : gpu_(gpu) {}

  std::string describe() const override;
  Arithmetic arithmetic() const override;
  bool sets_up_on_first_use() const override { return true; }
  Precision precision() const override { return std::is_same_v<Float, bf16> ? Precision::bf16 : Precision::fp32; }
  cudaStream_t stream() const override { return stream_; }
  std::int64_t enqueued() const override { return enqueued_; }

  void* allocate(std::int64_t bytes) override;
  // Waits for what may still use the memory.
  void release(void* pointer) override { cudaFree(pointer); }
  void zero(void* out, std::int64_t bytes) override {
    if (bytes > 0) CUDA_CHECK(cudaMemsetAsync(out, 0, static_cast<std::size_t>(bytes), stream_));
    progress();
  }
  void copy(void* out, const void* in, std::int64_t bytes) override {
    if (bytes <= 0 || out == in) return;
    CUDA_CHECK(cudaMemcpyAsync(out, in, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream_));
    progress();
  }
  void to_device(void* out, const void* host, std::int64_t bytes) override { staging_.copy(out, host, bytes, stream_); }
  void to_host(void* host, const void* in, std::int64_t bytes) override {
    staging_.fetch(host, in, bytes, stream_);
    marks_.renew_base();
  }
  // convert.cu
  void from_float(void* out, const float* in, std::int64_t n) override;
  void to_float(float* out, const void* in, std::int64_t n) override;

  HeadChunks head_chunks() const override { return HeadChunks::for_gpu; }
  std::int64_t workspace_bytes(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH,
                               std::int64_t /*Vp*/) const override;
  void use_workspace(void* workspace, std::int64_t bytes) override;
  void set_progress_hook(std::function<void()> hook) override { progress_ = std::move(hook); }

  Mark mark() override { return marks_.record(); }
  double time_ms(Mark mark) override {
    wait_for(marks_.event(mark));
    return marks_.time_ms(mark);
  }
  // Ranges of the host's thread in NVIDIA's profilers; without NVTX's headers nothing.
  void begin_range(const char* name) override;
  void end_range() override;
  void synchronize() override {
    wait_for(marks_.event(marks_.record()));
    marks_.renew_base();
  }

  // embedding.cu
  void embedding_forward(void* out, const std::int32_t* tokens, const void* wte, const void* wpe, std::int64_t B,
                         std::int64_t T, std::int64_t C) override;
  void embedding_backward(float* dwte, float* dwpe, const void* dout, const std::int32_t* tokens, std::int64_t B,
                          std::int64_t T, std::int64_t C) override;

  // layernorm.cu
  void layernorm_forward(void* out, float* mean, float* rstd, const void* in, const void* weight, const void* bias,
                         std::int64_t N, std::int64_t C) override;
  void layernorm_backward_input(void* din, const void* dout, const void* dresidual, const void* in, const float* mean,
                                const float* rstd, const void* weight, std::int64_t N, std::int64_t C) override;
  void layernorm_backward_weight(float* dweight, float* dbias, const void* dout, const void* in, const float* mean,
                                 const float* rstd, std::int64_t N, std::int64_t C) override;

  // matmul.cpp
  void matmul_forward(void* out, const void* in, const void* weight, const void* bias, std::int64_t N, std::int64_t C,
                      std::int64_t OC) override;
  void matmul_gelu_forward(void* out, void* pre, const void* in, const void* weight, const void* bias, std::int64_t N,
                           std::int64_t C, std::int64_t OC) override;
  void matmul_residual_forward(void* out, const void* in, const void* weight, const void* bias, const void* residual,
                               std::int64_t N, std::int64_t C, std::int64_t OC) override;
  void matmul_backward_input(void* din, const void* dout, const void* weight, std::int64_t N, std::int64_t C,
                             std::int64_t OC) override;
  void matmul_gelu_backward_input(void* dpre, const void* dout, const void* weight, const void* pre, std::int64_t N,
                                  std::int64_t C, std::int64_t OC) override;
  void matmul_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                              std::int64_t C, std::int64_t OC) override;
  void matmul_first_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                                    std::int64_t C, std::int64_t OC) override;

  // attention.cpp
  void attention_forward(void* out, float* lse, const void* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                         std::int64_t NH) override;
  void attention_backward(void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                          std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) override;

  // cross_entropy.cu
  void shard_scores(float* scores, const void* in, const void* weight, std::int64_t N, std::int64_t C,
                    std::int64_t OC) override;
  void shard_mixture(float* mixture, const void* in, const void* weight, bool first, std::int64_t N, std::int64_t C,
                     std::int64_t OC) override;
  void fold_scores(const SoftmaxFold& fold, void* exponentials, float* largest_then, const float* scores,
                   const std::int32_t* targets, const VocabularyShard& shard, bool first, std::int64_t rows,
                   std::int64_t C) override;
  void score_exponentials(void* exponentials, const float* scores, const float* largest_then,
                          const VocabularyShard& shard, std::int64_t rows) override;
  void finish_cross_entropy(float* losses, const SoftmaxFold& fold, const std::int32_t* targets, float dloss,
                            std::int64_t rows, std::int64_t C) override;
  void subtract_targets(float* din, const void* weight, const std::int32_t* targets, float dloss,
                        const VocabularyShard& shard, std::int64_t rows, std::int64_t C) override;
  void score_gradients(void* dscores, const void* exponentials, const float* largest_then, const float* largest,
                       const float* sum, const std::int32_t* targets, float dloss, const VocabularyShard& shard,
                       std::int64_t rows) override;

  // adamw.cu
  void adamw(float* new_parameter, void* working_copy, float* m, float* v, const float* parameter,
             const float* gradient, const AdamWScalars* scalars, const AdamWConstants& constants, bool keep_moments,
             std::int64_t n) override;
  void adamw_moments(float* m, float* v, const float* gradient, const AdamWScalars* scalars,
                     const AdamWConstants& constants, std::int64_t n) override;
  void adamw_all(float* new_parameters, void* working_copies, float* m, float* v, const float* parameters,
                 const float* gradients, std::span<const ArenaTensor> tensors, const AdamWScalars* scalars,
                 const AdamWConstants& constants, bool keep_moments) override;
  void adamw_moments_all(float* m, float* v, const float* gradients, std::span<const ArenaTensor> tensors,
                         const AdamWScalars* scalars, const AdamWConstants& constants) override;
  // muon.cu
  void muon_squared_sums(double* sums, const AveragedGradient& from, std::int64_t n) override;
  void muon_direction(void* out, const AveragedGradient& from, const double* sums, std::int64_t n) override;
  void muon_average(float* average, const AveragedGradient& from, std::int64_t n) override;
  void weighted_sum(void* out, float a, const void* x, float b, const void* y, std::int64_t n) override;
  void muon_update(float* new_parameter, void* working_copy, const float* parameter, const void* update,
                   const AdamWScalars* scalars, float weight_decay, float scale, std::int64_t n) override;
  // norm.cu
  void squared_sums(double* sums, const float* x, std::int64_t n) override;
  void squared_sums_all(double* sums, const float* x, std::span<const ArenaTensor> tensors) override;
  // convert.cu
  void add(float* out, const float* in, std::int64_t n) override;
  void add_all(std::span<const Addition> tensors) override;
  void zero_all(std::span<const Zeros> tensors) override;

 private:
  static Float* low(void* p) { return static_cast<Float*>(p); }
  static const Float* low(const void* p) { return static_cast<const Float*>(p); }

  void weight_gradient(float* dweight, float* dbias, const void* in, const void* dout, bool first, std::int64_t N,
                       std::int64_t C, std::int64_t OC);

  // At the end of every operation.
  void progress() {
    ++enqueued_;
    if (progress_) progress_();
  }

  // Messages move on while the host waits.
  void wait_for(cudaEvent_t event) const;

  // Device memory of the workspace, which belongs to an operation until it ends.
  float* scratch_of(std::int64_t bytes) const;

  int gpu_;
  Stream stream_;
  Staging staging_{[this](cudaEvent_t event) { wait_for(event); }};
  Marks marks_{stream_};
  MatrixProducts products_{sizeof(Float) == 2 ? CUDA_R_16BF : CUDA_R_32F};
  char* scratch_ = nullptr;
  std::int64_t scratch_bytes_ = 0;
  std::int64_t enqueued_ = 0;
  std::function<void()> progress_;
};

// The type of a member function, without its class.
template <typename Member>
struct SignatureOf;
template <typename Result, typename Class, typename... Arguments>
struct SignatureOf<Result (Class::*)(Arguments...)> {
  using type = Result(Arguments...);
};

}  // namespace train_gpt::cuda

// Compiles an operation, defined above, for both types.
#define TRAIN_GPT_FOR_FLOAT_AND_BF16(operation)                                                     \
  template SignatureOf<decltype(&CudaDevice<float>::operation)>::type CudaDevice<float>::operation; \
  template SignatureOf<decltype(&CudaDevice<bf16>::operation)>::type CudaDevice<bf16>::operation;

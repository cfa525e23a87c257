// The cpu device: conversions from void*, and the functions of operations.h.
#pragma once

#include "kernels/cpu/operations.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace train_gpt {

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads);

  std::string describe() const override;
  Precision precision() const override { return Precision::fp32; }

  void* allocate(std::int64_t bytes) override;
  void release(void* pointer) override;
  void zero(void* out, std::int64_t bytes) override { cpu::zero(pool_, out, bytes); }
  void copy(void* out, const void* in, std::int64_t bytes) override { cpu::copy(pool_, out, in, bytes); }
  void to_device(void* out, const void* host, std::int64_t bytes) override { cpu::copy(pool_, out, host, bytes); }
  void to_host(void* host, const void* in, std::int64_t bytes) override { cpu::copy(pool_, host, in, bytes); }
  void from_float(void* out, const float* in, std::int64_t n) override { cpu::copy(pool_, out, in, n * 4); }
  void to_float(float* out, const void* in, std::int64_t n) override { cpu::copy(pool_, out, in, n * 4); }

  std::int64_t workspace_bytes(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH,
                               std::int64_t Vp) const override;
  void use_workspace(void* workspace, std::int64_t bytes) override {
    workspace_ = floats(workspace);
    workspace_bytes_ = bytes;
  }
  void set_progress_hook(std::function<void()> hook) override { pool_.set_progress_hook(std::move(hook)); }

  Mark mark() override;
  double time_ms(Mark mark) override { return static_cast<double>(mark) * 1e-6; }
  void synchronize() override {}

  void embedding_forward(void* out, const std::int32_t* tokens, const void* wte, const void* wpe, std::int64_t B,
                         std::int64_t T, std::int64_t C) override {
    cpu::embedding_forward(pool_, floats(out), tokens, floats(wte), floats(wpe), B, T, C);
  }
  void embedding_backward(float* dwte, float* dwpe, const void* dout, const std::int32_t* tokens, std::int64_t B,
                          std::int64_t T, std::int64_t C) override {
    cpu::embedding_backward(pool_, dwte, dwpe, floats(dout), tokens, B, T, C);
  }

  void layernorm_forward(void* out, float* mean, float* rstd, const void* in, const void* weight, const void* bias,
                         std::int64_t N, std::int64_t C) override {
    cpu::layernorm_forward(pool_, floats(out), mean, rstd, floats(in), floats(weight), floats(bias), N, C);
  }
  void layernorm_backward_input(void* din, const void* dout, const void* dresidual, const void* in, const float* mean,
                                const float* rstd, const void* weight, std::int64_t N, std::int64_t C) override {
    cpu::layernorm_backward_input(pool_, floats(din), floats(dout), floats(dresidual), floats(in), mean, rstd,
                                  floats(weight), N, C);
  }
  void layernorm_backward_weight(float* dweight, float* dbias, const void* dout, const void* in, const float* mean,
                                 const float* rstd, std::int64_t N, std::int64_t C) override {
    cpu::layernorm_backward_weight(pool_, dweight, dbias, floats(dout), floats(in), mean, rstd, N, C);
  }

  void matmul_forward(void* out, const void* in, const void* weight, const void* bias, std::int64_t N, std::int64_t C,
                      std::int64_t OC) override {
    cpu::matmul_forward(pool_, floats(out), floats(in), floats(weight), floats(bias), N, C, OC);
  }
  void matmul_gelu_forward(void* out, void* pre, const void* in, const void* weight, const void* bias, std::int64_t N,
                           std::int64_t C, std::int64_t OC) override {
    cpu::matmul_gelu_forward(pool_, floats(out), floats(pre), floats(in), floats(weight), floats(bias), N, C, OC);
  }
  void matmul_residual_forward(void* out, const void* in, const void* weight, const void* bias, const void* residual,
                               std::int64_t N, std::int64_t C, std::int64_t OC) override {
    cpu::matmul_residual_forward(pool_, floats(out), floats(in), floats(weight), floats(bias), floats(residual), N, C,
                                 OC);
  }
  void matmul_backward_input(void* din, const void* dout, const void* weight, std::int64_t N, std::int64_t C,
                             std::int64_t OC) override {
    cpu::matmul_backward_input(pool_, floats(din), floats(dout), floats(weight), N, C, OC);
  }
  void matmul_gelu_backward_input(void* dpre, const void* dout, const void* weight, const void* pre, std::int64_t N,
                                  std::int64_t C, std::int64_t OC) override {
    cpu::matmul_gelu_backward_input(pool_, scratch(cpu::matmul_scratch_floats(N, C)), floats(dpre), floats(dout),
                                    floats(weight), floats(pre), N, C, OC);
  }
  void matmul_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                              std::int64_t C, std::int64_t OC) override {
    cpu::matmul_backward_weight(pool_, dweight, dbias, floats(in), floats(dout), true, N, C, OC);
  }
  void matmul_first_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                                    std::int64_t C, std::int64_t OC) override {
    cpu::matmul_backward_weight(pool_, dweight, dbias, floats(in), floats(dout), false, N, C, OC);
  }

  void attention_forward(void* out, float* lse, const void* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                         std::int64_t NH) override {
    cpu::attention_forward(pool_, scratch(cpu::attention_scratch_floats(T)), floats(out), lse, floats(qkv), B, T, C,
                           NH);
  }
  void attention_backward(void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                          std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) override {
    cpu::attention_backward(pool_, scratch(cpu::attention_scratch_floats(T)), floats(dqkv), floats(dout), floats(qkv),
                            floats(out), lse, B, T, C, NH);
  }

  void cross_entropy(float* losses, void* logits, const std::int32_t* targets, float dloss, bool with_gradient,
                     std::int64_t rows, std::int64_t V, std::int64_t Vp) override {
    cpu::cross_entropy(pool_, losses, floats(logits), targets, dloss, with_gradient, rows, V, Vp);
  }

  void adamw(float* new_parameter, void* low, float* m, float* v, const float* parameter, const float* gradient,
             const AdamWScalars* scalars, const AdamWConstants& constants, bool keep_moments, std::int64_t n) override {
    cpu::adamw(pool_, new_parameter, m, v, parameter, gradient, *scalars, constants, keep_moments, n);
    if (low != nullptr && low != new_parameter) from_float(low, new_parameter, n);
  }
  void adamw_moments(float* m, float* v, const float* gradient, const AdamWScalars* scalars,
                     const AdamWConstants& constants, std::int64_t n) override {
    cpu::adamw_moments(pool_, m, v, gradient, *scalars, constants, n);
  }
  void squared_sums(double* sums, const float* x, std::int64_t n) override { cpu::squared_sums(pool_, sums, x, n); }
  void add(float* out, const float* in, std::int64_t n) override { cpu::add(pool_, out, in, n); }

 private:
  static const float* floats(const void* p) { return static_cast<const float*>(p); }
  static float* floats(void* p) { return static_cast<float*>(p); }
  // The workspace in equal pieces, one per worker.
  cpu::Scratch scratch(std::int64_t floats_per_worker) const;

  ThreadPool pool_;
  float* workspace_ = nullptr;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace train_gpt

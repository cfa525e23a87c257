// The cpu device: fp32, shared out over a ThreadPool. Its operations are defined in the file of their topic, whose name
// stands above them here; shapes and formulas are those of kernels/device.h, and the promise about bits that is made
// there holds.
#pragma once

#include <cstdint>

#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace train_gpt::cpu {

// The workspace in equal pieces, one per worker, each a multiple of 256 bytes.
struct Scratch {
  float* base = nullptr;
  std::int64_t floats_per_worker = 0;
  float* of(int worker) const { return base + worker * floats_per_worker; }
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads);

  std::string describe() const override;
  Arithmetic arithmetic() const override;
  Precision precision() const override { return Precision::fp32; }
  bool rows_stand_alone() const override { return true; }

  void* allocate(std::int64_t bytes) override;
  void release(void* pointer) override;
  // memory.cpp
  void zero(void* out, std::int64_t bytes) override;
  void copy(void* out, const void* in, std::int64_t bytes) override;
  void to_device(void* out, const void* host, std::int64_t bytes) override { copy(out, host, bytes); }
  void to_host(void* host, const void* in, std::int64_t bytes) override { copy(host, in, bytes); }
  void from_float(void* out, const float* in, std::int64_t n) override { copy(out, in, n * 4); }
  void to_float(float* out, const void* in, std::int64_t n) override { copy(out, in, n * 4); }

  std::int64_t workspace_bytes(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH,
                               std::int64_t Vp) const override;
  void use_workspace(void* workspace, std::int64_t bytes) override {
    workspace_ = floats(workspace);
    workspace_bytes_ = bytes;
  }
  void run_on_host(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    pool_.run(count, [&](std::int64_t i, int) { task(i); });
  }
  void set_progress_hook(std::function<void()> hook) override { pool_.set_progress_hook(std::move(hook)); }

  Mark mark() override;
  double time_ms(Mark mark) override { return static_cast<double>(mark) * 1e-6; }
  void synchronize() override {}

  // embedding.cpp
  void embedding_forward(void* out, const std::int32_t* tokens, const void* wte, const void* wpe, std::int64_t B,
                         std::int64_t T, std::int64_t C) override;
  void embedding_backward(float* dwte, float* dwpe, const void* dout, const std::int32_t* tokens, std::int64_t B,
                          std::int64_t T, std::int64_t C) override;

  // layernorm.cpp
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
  void attention_forward_from(void* out, float* lse, const void* qkv, std::int64_t first, std::int64_t T,
                              std::int64_t C, std::int64_t NH) override;
  void attention_backward(void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                          std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) override;

  // cross_entropy.cpp
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

  // optimizer.cpp
  void adamw(float* new_parameter, void* low, float* m, float* v, const float* parameter, const float* gradient,
             const AdamWScalars* scalars, const AdamWConstants& constants, bool keep_moments, std::int64_t n) override;
  void adamw_moments(float* m, float* v, const float* gradient, const AdamWScalars* scalars,
                     const AdamWConstants& constants, std::int64_t n) override;
  void squared_sums(double* sums, const float* x, std::int64_t n) override;
  // muon.cpp
  void muon_squared_sums(double* sums, const AveragedGradient& from, std::int64_t n) override;
  void muon_direction(void* out, const AveragedGradient& from, const double* sums, std::int64_t n) override;
  void muon_average(float* average, const AveragedGradient& from, std::int64_t n) override;
  void weighted_sum(void* out, float a, const void* x, float b, const void* y, std::int64_t n) override;
  void muon_update(float* new_parameter, void* low, const float* parameter, const void* update,
                   const AdamWScalars* scalars, float weight_decay, float scale, std::int64_t n) override;
  // memory.cpp
  void add(float* out, const float* in, std::int64_t n) override;

 private:
  static const float* floats(const void* p) { return static_cast<const float*>(p); }
  static float* floats(void* p) { return static_cast<float*>(p); }
  std::int64_t tile_scratch_floats(std::int64_t N, std::int64_t C) const;  // of a product (N,C): one tile
  static std::int64_t attention_scratch_floats(std::int64_t T);
  // Throws std::logic_error where the workspace has less.
  Scratch scratch(std::int64_t floats_per_worker) const;

  ThreadPool pool_;
  float* workspace_ = nullptr;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace train_gpt::cpu

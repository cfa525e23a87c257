// The cpu device: checks, conversions from void*, and the functions of operations.h.
#include <cblas.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <sstream>
#include <stdexcept>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tiles.h"
#include "kernels/device.h"

namespace train_gpt {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

const float* fp32(const void* p) { return static_cast<const float*>(p); }
float* fp32(void* p) { return static_cast<float*>(p); }

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : pool_(threads) { cpu::use_one_blas_thread(); }

  std::string describe() const override {
    std::istringstream config(openblas_get_config());  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH .."
    std::string name, version;
    config >> name >> version;
    const int threads = pool_.threads();
    return "cpu: " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") + name + ' ' + version +
           ' ' + openblas_get_corename() + ", fp32";
  }
  Precision precision() const override { return Precision::fp32; }

  void* allocate(std::int64_t bytes) override {
    if (bytes < 0) throw std::invalid_argument("cannot allocate " + std::to_string(bytes) + " bytes");
    const std::int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    const std::int64_t rounded = (std::max<std::int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* pointer = rounded < bytes
                        ? nullptr
                        : std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(rounded));
    if (pointer == nullptr) {
      throw std::runtime_error("out of memory: the cpu device cannot allocate " + std::to_string(bytes) + " bytes");
    }
#ifdef MADV_HUGEPAGE
    // Passes over parameters and packing for matrix products touch a page per few microseconds; a refusal costs
    // nothing.
    if (alignment == kHugePage) (void)madvise(pointer, static_cast<std::size_t>(rounded), MADV_HUGEPAGE);
#endif
    return pointer;
  }
  void release(void* pointer) override { std::free(pointer); }
  void zero(void* out, std::int64_t bytes) override { cpu::zero(pool_, out, bytes); }
  void copy(void* out, const void* in, std::int64_t bytes) override { cpu::copy(pool_, out, in, bytes); }
  void to_device(void* out, const void* host, std::int64_t bytes) override { cpu::copy(pool_, out, host, bytes); }
  void to_host(void* host, const void* in, std::int64_t bytes) override { cpu::copy(pool_, host, in, bytes); }
  void from_float(void* out, const float* in, std::int64_t n) override { cpu::copy(pool_, out, in, n * 4); }
  void to_float(float* out, const void* in, std::int64_t n) override { cpu::copy(pool_, out, in, n * 4); }

  std::int64_t workspace_bytes(std::int64_t /*B*/, std::int64_t T, std::int64_t /*C*/, std::int64_t /*NH*/,
                               std::int64_t /*Vp*/) const override {
    const std::int64_t floats = std::max(cpu::matmul_scratch_floats(), cpu::attention_scratch_floats(T));
    return pool_.threads() * floats * static_cast<std::int64_t>(sizeof(float));
  }
  void use_workspace(void* workspace, std::int64_t bytes) override {
    workspace_ = fp32(workspace);
    workspace_bytes_ = bytes;
  }
  void set_progress_hook(std::function<void()> hook) override { pool_.set_progress_hook(std::move(hook)); }

  Mark mark() override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
  double time_ms(Mark mark) override { return static_cast<double>(mark) * 1e-6; }
  void synchronize() override {}

  void embedding_forward(void* out, const std::int32_t* tokens, const void* wte, const void* wpe, std::int64_t B,
                         std::int64_t T, std::int64_t C) override {
    cpu::embedding_forward(pool_, fp32(out), tokens, fp32(wte), fp32(wpe), B, T, C);
  }
  void embedding_backward(float* dwte, float* dwpe, const void* dout, const std::int32_t* tokens, std::int64_t B,
                          std::int64_t T, std::int64_t C) override {
    cpu::embedding_backward(pool_, dwte, dwpe, fp32(dout), tokens, B, T, C);
  }

  void layernorm_forward(void* out, float* mean, float* rstd, const void* in, const void* weight, const void* bias,
                         std::int64_t N, std::int64_t C) override {
    cpu::layernorm_forward(pool_, fp32(out), mean, rstd, fp32(in), fp32(weight), fp32(bias), N, C);
  }
  void layernorm_backward_input(void* din, const void* dout, const void* dresidual, const void* in, const float* mean,
                                const float* rstd, const void* weight, std::int64_t N, std::int64_t C) override {
    cpu::layernorm_backward_input(pool_, fp32(din), fp32(dout), fp32(dresidual), fp32(in), mean, rstd, fp32(weight), N,
                                  C);
  }
  void layernorm_backward_weight(float* dweight, float* dbias, const void* dout, const void* in, const float* mean,
                                 const float* rstd, std::int64_t N, std::int64_t C) override {
    cpu::layernorm_backward_weight(pool_, dweight, dbias, fp32(dout), fp32(in), mean, rstd, N, C);
  }

  void matmul_forward(void* out, const void* in, const void* weight, const void* bias, std::int64_t N, std::int64_t C,
                      std::int64_t OC) override {
    cpu::matmul_forward(pool_, fp32(out), fp32(in), fp32(weight), fp32(bias), N, C, OC);
  }
  void matmul_gelu_forward(void* out, void* pre, const void* in, const void* weight, const void* bias, std::int64_t N,
                           std::int64_t C, std::int64_t OC) override {
    cpu::matmul_gelu_forward(pool_, fp32(out), fp32(pre), fp32(in), fp32(weight), fp32(bias), N, C, OC);
  }
  void matmul_residual_forward(void* out, const void* in, const void* weight, const void* bias, const void* residual,
                               std::int64_t N, std::int64_t C, std::int64_t OC) override {
    cpu::matmul_residual_forward(pool_, fp32(out), fp32(in), fp32(weight), fp32(bias), fp32(residual), N, C, OC);
  }
  void matmul_backward_input(void* din, const void* dout, const void* weight, std::int64_t N, std::int64_t C,
                             std::int64_t OC) override {
    cpu::matmul_backward_input(pool_, fp32(din), fp32(dout), fp32(weight), N, C, OC);
  }
  void matmul_gelu_backward_input(void* dpre, const void* dout, const void* weight, const void* pre, std::int64_t N,
                                  std::int64_t C, std::int64_t OC) override {
    cpu::matmul_gelu_backward_input(pool_, scratch(cpu::matmul_scratch_floats()), fp32(dpre), fp32(dout), fp32(weight),
                                    fp32(pre), N, C, OC);
  }
  void matmul_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                              std::int64_t C, std::int64_t OC) override {
    cpu::matmul_backward_weight(pool_, dweight, dbias, fp32(in), fp32(dout), true, N, C, OC);
  }
  void matmul_first_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                                    std::int64_t C, std::int64_t OC) override {
    cpu::matmul_backward_weight(pool_, dweight, dbias, fp32(in), fp32(dout), false, N, C, OC);
  }

  void attention_forward(void* out, float* lse, const void* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                         std::int64_t NH) override {
    cpu::attention_forward(pool_, scratch(cpu::attention_scratch_floats(T)), fp32(out), lse, fp32(qkv), B, T, C, NH);
  }
  void attention_backward(void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                          std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) override {
    cpu::attention_backward(pool_, scratch(cpu::attention_scratch_floats(T)), fp32(dqkv), fp32(dout), fp32(qkv),
                            fp32(out), lse, B, T, C, NH);
  }

  void cross_entropy(float* losses, void* logits, const std::int32_t* targets, float dloss, bool with_gradient,
                     std::int64_t rows, std::int64_t V, std::int64_t Vp) override {
    cpu::cross_entropy(pool_, losses, fp32(logits), targets, dloss, with_gradient, rows, V, Vp);
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
  // The workspace in equal pieces, one per worker.
  cpu::Scratch scratch(std::int64_t floats_per_worker) const {
    const std::int64_t needed = pool_.threads() * floats_per_worker * static_cast<std::int64_t>(sizeof(float));
    if (workspace_ == nullptr || workspace_bytes_ < needed) {
      throw std::logic_error("the cpu device has a workspace of " + std::to_string(workspace_bytes_) +
                             " bytes and needs " + std::to_string(needed) + " (workspace_bytes, use_workspace)");
    }
    return {workspace_, floats_per_worker};
  }

  ThreadPool pool_;
  float* workspace_ = nullptr;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) { return std::make_unique<CpuDevice>(threads); }

}  // namespace train_gpt

// Device: memory, order and arithmetic. Operations take raw pointers and sizes, nothing else; outputs come first. All
// arithmetic is enqueued on the device's one compute stream and runs in the order of the calls; the cpu device has
// finished when a call returns.
//
// Types: "activation" buffers (void*) hold precision() elements, fp32 or bf16: activations, their gradients, and the
// parameters that the matrix products read. Gradients of parameters, optimizer state, statistics and losses are fp32.
// Shapes: B rows of a micro-batch, T positions, C hidden, NH heads, N = B*T, V vocabulary, Vp padded vocabulary
// (multiple of 128). Matrices are row-major; weights are (outputs, inputs) as in llm.c's files. All sizes are 64-bit.
//
// Bitwise contract: results depend on shapes and values only, never on the number of threads, on alignment (buffers are
// 256-byte aligned) or on what ran before. Reductions run over blocks fixed by the shape, in a fixed order. "+=" in a
// comment: the operation adds to the buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/arithmetic.h"

namespace train_gpt {

enum class Precision : std::uint8_t { fp32, bf16 };

// Bytes of one element of an activation buffer.
std::int64_t element_size(Precision precision);

// Scalars of AdamW that change from step to step. Operations read them from device memory, so that a captured or
// enqueued step needs no new arguments.
struct AdamWScalars {
  float learning_rate = 0;
  float beta1_correction = 1;  // 1 - beta1^(step+1)
  float beta2_correction = 1;
  float gradient_scale = 1;  // clip factor: gradients are multiplied by it on reading
};

struct AdamWConstants {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  float weight_decay = 0;  // decoupled; already 0 for tensors that are not matrices

  AdamWConstants for_tensor(bool decays) const {
    AdamWConstants constants = *this;
    if (!decays) constants.weight_decay = 0;
    return constants;
  }
};

// The inputs of a matrix's step by Muon (model/muon.h), n elements at the same place of both arenas. With b the
// momentum and G = gradient * gradient_scale:
//   M' = b M + (1 - b) G the new average
//   G' = b M' + (1 - b) G         what the step follows (Nesterov)
struct AveragedGradient {
  const float* average = nullptr;  // M
  const float* gradient = nullptr;
  const AdamWScalars* scalars = nullptr;  // device memory
  float momentum = 0;                     // b
};

// A shard: columns [begin, begin + width) of the padded vocabulary. The first `columns` of them, of which every shard
// has at least one, are not padding.
struct VocabularyShard {
  std::int64_t begin = 0;
  std::int64_t width = 0;
  std::int64_t columns = 0;
};

// The running sums of the classifier's shards, one row per position: see Device::fold_scores. In the backward pass,
// mixture is the gradient of the classifier's input.
struct SoftmaxFold {
  float* largest = nullptr;
  float* sum = nullptr;
  float* at_target = nullptr;
  float* mixture = nullptr;  // (rows,C); null where no gradient is wanted
};

// One atom: the unit of norms, hashes and optimizer shards.
inline constexpr std::int64_t kAtomElements = 65536;

// Chunks of the head's rows fit the caches of a cpu, or the L2 of a GPU, where launches should also be few.
enum class HeadChunks : std::uint8_t { for_cpu, for_gpu };

// The most tensors that one operation takes.
inline constexpr std::size_t kTensorsAtOnce = 120;

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual std::string describe() const = 0;  // one line for people: "cpu: 2 threads, AVX-512, fp32"
  virtual Arithmetic arithmetic() const = 0;
  // True if operations load or set up something on their first run (code, plans of products), which makes others wait.
  virtual bool sets_up_on_first_use() const { return false; }
  virtual Precision precision() const = 0;
  // True if a row of a forward operation has the same bits whatever rows are beside it: generation may then keep the
  // keys and values of a text and compute its new positions alone.
  virtual bool rows_stand_alone() const { return false; }

  // ---- memory ---------------------------------------------------------------------------------------------------
  // 256-byte aligned, contents undefined. Throws std::runtime_error naming the bytes if memory is short.
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual void release(void* pointer) = 0;
  virtual void zero(void* out, std::int64_t bytes) = 0;
  virtual void copy(void* out, const void* in, std::int64_t bytes) = 0;         // device to device
  virtual void to_device(void* out, const void* host, std::int64_t bytes) = 0;  // host buffer reusable on return
  virtual void to_host(void* host, const void* in, std::int64_t bytes) = 0;     // returns when the data has arrived
  // fp32 -> activation precision and back (n elements).
  virtual void from_float(void* out, const float* in, std::int64_t n) = 0;
  virtual void to_float(float* out, const void* in, std::int64_t n) = 0;

  // Bytes of scratch that the operations below need for these sizes; it is allocated by the plan and handed over before
  // the first operation. Operations never allocate.
  virtual std::int64_t workspace_bytes(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH,
                                       std::int64_t Vp) const = 0;
  virtual void use_workspace(void* workspace, std::int64_t bytes) = 0;

  // The rule for the number of rows in a chunk of the head (model/unit_head.h).
  virtual HeadChunks head_chunks() const { return HeadChunks::for_cpu; }

  // The compute thread, and no other, calls the hook between tiles and operations, at least every few milliseconds, so
  // that messages move while a stage computes.
  virtual void set_progress_hook(std::function<void()> hook) = 0;

  // Calls task(0) .. task(count - 1), in any order, on this device's host threads.
  virtual void run_on_host(std::int64_t count, const std::function<void(std::int64_t)>& task) {
    for (std::int64_t i = 0; i < count; ++i) task(i);
  }

  // ---- time -----------------------------------------------------------------------------------------------------
  // A mark in the compute stream. time_ms waits until the stream has passed it.
  using Mark = std::int64_t;
  virtual Mark mark() = 0;
  // Milliseconds since a time base shared by the ranks of a host (CLOCK_MONOTONIC on the cpu device).
  virtual double time_ms(Mark mark) = 0;
  virtual void synchronize() = 0;

  // Names the operations in between for a profiler's timeline (NVTX on CUDA; nothing elsewhere). Ranges may nest.
  virtual void begin_range(const char* name) { static_cast<void>(name); }
  virtual void end_range() {}

  // ---- embedding ------------------------------------------------------------------------------------------------
  // out(B,T,C) = wte(Vp,C)[tokens(B,T)] + wpe(maxT,C)[t]
  virtual void embedding_forward(void* out, const std::int32_t* tokens, const void* wte, const void* wpe,
                                 std::int64_t B, std::int64_t T, std::int64_t C) = 0;
  // dwte(Vp,C) +=, dwpe(maxT,C) +=; rows of equal tokens are added in order of their position
  virtual void embedding_backward(float* dwte, float* dwpe, const void* dout, const std::int32_t* tokens,
                                  std::int64_t B, std::int64_t T, std::int64_t C) = 0;

  // ---- LayerNorm, eps 1e-5 ----------------------------------------------------------------------------------------
  // out(N,C), mean(N), rstd(N)
  virtual void layernorm_forward(void* out, float* mean, float* rstd, const void* in, const void* weight,
                                 const void* bias, std::int64_t N, std::int64_t C) = 0;
  // din(N,C) = dresidual(N,C) + d LayerNorm/d in; dresidual may be null, or equal din
  virtual void layernorm_backward_input(void* din, const void* dout, const void* dresidual, const void* in,
                                        const float* mean, const float* rstd, const void* weight, std::int64_t N,
                                        std::int64_t C) = 0;
  // dweight(C) +=, dbias(C) +=
  virtual void layernorm_backward_weight(float* dweight, float* dbias, const void* dout, const void* in,
                                         const float* mean, const float* rstd, std::int64_t N, std::int64_t C) = 0;

  // ---- matrix products: weight(OC,C), bias(OC) or null -------------------------------------------------------------
  // out(N,OC) = in(N,C) weight^T + bias
  virtual void matmul_forward(void* out, const void* in, const void* weight, const void* bias, std::int64_t N,
                              std::int64_t C, std::int64_t OC) = 0;
  // pre(N,OC) = in weight^T + bias; out(N,OC) = gelu(pre), tanh form. pre null: not kept.
  virtual void matmul_gelu_forward(void* out, void* pre, const void* in, const void* weight, const void* bias,
                                   std::int64_t N, std::int64_t C, std::int64_t OC) = 0;
  // out(N,OC) = residual(N,OC) + in weight^T + bias; out and residual may be the same buffer
  virtual void matmul_residual_forward(void* out, const void* in, const void* weight, const void* bias,
                                       const void* residual, std::int64_t N, std::int64_t C, std::int64_t OC) = 0;
  // din(N,C) = dout(N,OC) weight
  virtual void matmul_backward_input(void* din, const void* dout, const void* weight, std::int64_t N, std::int64_t C,
                                     std::int64_t OC) = 0;
  // dpre(N,C) = (dout(N,OC) weight(OC,C)) * gelu'(pre(N,C)); dpre and pre may be the same buffer
  virtual void matmul_gelu_backward_input(void* dpre, const void* dout, const void* weight, const void* pre,
                                          std::int64_t N, std::int64_t C, std::int64_t OC) = 0;
  // dweight(OC,C) += dout(N,OC)^T in(N,C); dbias(OC) += column sums of dout; dbias may be null
  virtual void matmul_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                                      std::int64_t C, std::int64_t OC) = 0;
  // The same, for the first micro-batch of a step: dweight(OC,C) = instead of +=; dbias is still added to. It saves the
  // pass that would set the gradients of all matrices to zero, and reading those zeros.
  virtual void matmul_first_backward_weight(float* dweight, float* dbias, const void* in, const void* dout,
                                            std::int64_t N, std::int64_t C, std::int64_t OC) {
    zero(dweight, OC * C * static_cast<std::int64_t>(sizeof(float)));
    matmul_backward_weight(dweight, dbias, in, dout, N, C, OC);
  }

  // ---- causal self-attention, blocked, T x T never stored (Dao et al. 2022, Milakov and Gimelshein 2018) -----------
  // qkv(B,T,3C) holds q, k, v of all heads side by side; out(B,T,C); lse(B,NH,T) = log sum exp of the scaled scores
  virtual void attention_forward(void* out, float* lse, const void* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                                 std::int64_t NH) = 0;
  // For the queries of one row's positions [first, T) alone: out(T-first,C), lse(NH,T-first), with the bits of
  // attention_forward. Only if rows_stand_alone().
  virtual void attention_forward_from(void* out, float* lse, const void* qkv, std::int64_t first, std::int64_t T,
                                      std::int64_t C, std::int64_t NH);
  // dqkv(B,T,3C)
  virtual void attention_backward(void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                                  std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) = 0;

  // ---- classifier: softmax cross-entropy, one shard of the vocabulary after the other (see model/unit_head.h) ------
  // The scores of a row are in(C) weight^T; at the row's target (targets < 0: none) they enter the loss.

  // scores(N,OC) fp32 = in(N,C) weight(OC,C)^T
  virtual void shard_scores(float* scores, const void* in, const void* weight, std::int64_t N, std::int64_t C,
                            std::int64_t OC) = 0;
  // mixture(N,C) fp32 = (first) or += in(N,OC) weight(OC,C)
  virtual void shard_mixture(float* mixture, const void* in, const void* weight, bool first, std::int64_t N,
                             std::int64_t C, std::int64_t OC) = 0;
  // Adds the scores(rows,width) of a shard to the fold; the first shard starts it:
  //   largest(rows) = max over the columns so far    sum(rows) = sum of exp(score - largest), unrounded
  //   at_target(rows) = score of the target, once its shard has come
  //   mixture(rows,C) *= exp(change of largest), in rows where it changed (null: left alone)
  //   exponentials(rows,width) = exp(score - largest) at activation precision, padding 0 (null: not wanted; may be the
  //   scores' own buffer in fp32)
  //   largest_then(rows) = largest (null: not wanted)
  virtual void fold_scores(const SoftmaxFold& fold, void* exponentials, float* largest_then, const float* scores,
                           const std::int32_t* targets, const VocabularyShard& shard, bool first, std::int64_t rows,
                           std::int64_t C) = 0;
  // The exponentials of fold_scores once more, bit for bit, from scores and largest_then.
  virtual void score_exponentials(void* exponentials, const float* scores, const float* largest_then,
                                  const VocabularyShard& shard, std::int64_t rows) = 0;
  // After the last shard: losses(rows) = log sum + largest - at_target; mixture(rows,C) *= dloss / sum (null: left
  // alone). Rows without target: 0.
  virtual void finish_cross_entropy(float* losses, const SoftmaxFold& fold, const std::int32_t* targets, float dloss,
                                    std::int64_t rows, std::int64_t C) = 0;
  // din(rows,C) fp32 -= dloss weight(width,C)[target - begin], in rows whose target lies in the shard
  virtual void subtract_targets(float* din, const void* weight, const std::int32_t* targets, float dloss,
                                const VocabularyShard& shard, std::int64_t rows, std::int64_t C) = 0;
  // dscores(rows,width) = exponentials exp(largest_then - largest) dloss / sum - dloss at the target; may be the
  // exponentials' buffer. Rows without target: 0.
  virtual void score_gradients(void* dscores, const void* exponentials, const float* largest_then, const float* largest,
                               const float* sum, const std::int32_t* targets, float dloss, const VocabularyShard& shard,
                               std::int64_t rows) = 0;

  // ---- optimizer ----------------------------------------------------------------------------------------------------
  // AdamW (Loshchilov and Hutter 2019), n elements. new_parameter may equal parameter. low (n elements of precision(),
  // or null) receives the rounded copy. m and v are updated in place unless keep_moments.
  virtual void adamw(float* new_parameter, void* low, float* m, float* v, const float* parameter, const float* gradient,
                     const AdamWScalars* scalars, const AdamWConstants& constants, bool keep_moments,
                     std::int64_t n) = 0;
  // m and v alone: the update that adamw(.., keep_moments = true) leaves out, bit for bit
  virtual void adamw_moments(float* m, float* v, const float* gradient, const AdamWScalars* scalars,
                             const AdamWConstants& constants, std::int64_t n) = 0;
  // The elementwise parts of Muon, whose products are those above. Buffers start at multiples of 4 bytes (2 in bf16),
  // since q, k and v lie in one tensor; `out` and `update` at multiples of 256.
  //
  // sums[a] = sum of squares of atom a of G', accumulated in double
  virtual void muon_squared_sums(double* sums, const AveragedGradient& from, std::int64_t n) = 0;
  // out(n) = G' / (sqrt(sum of all sums) + 1e-7), at activation precision
  virtual void muon_direction(void* out, const AveragedGradient& from, const double* sums, std::int64_t n) = 0;
  // average(n) = M'; average is from.average
  virtual void muon_average(float* average, const AveragedGradient& from, std::int64_t n) = 0;
  // out(n) = a x(n) + b y(n), all at activation precision; out may be x or y
  virtual void weighted_sum(void* out, float a, const void* x, float b, const void* y, std::int64_t n) = 0;
  // new_parameter(n) = parameter (1 - lr weight_decay) - lr scale update(n), update at activation precision;
  // new_parameter may equal parameter. low: as for adamw.
  virtual void muon_update(float* new_parameter, void* low, const float* parameter, const void* update,
                           const AdamWScalars* scalars, float weight_decay, float scale, std::int64_t n) = 0;
  // sums[a] = sum of squares of atom a of x (ceil(n / kAtomElements) atoms), accumulated in double
  virtual void squared_sums(double* sums, const float* x, std::int64_t n) = 0;
  // out(n) += in(n): the tied embedding's two gradients, groups of micro-batches
  virtual void add(float* out, const float* in, std::int64_t n) = 0;

  // ---- several tensors, at most kTensorsAtOnce, in one operation ----------------------------------------------------
  // The bits are those of one operation per tensor. The defaults do just that, since starting one costs a cpu nothing.
  struct Zeros {
    float* out = nullptr;
    std::int64_t elements = 0;
  };
  virtual void zero_all(std::span<const Zeros> tensors) {
    for (const Zeros& one : tensors) zero(one.out, one.elements * static_cast<std::int64_t>(sizeof(float)));
  }
  struct Addition {
    float* out = nullptr;
    const float* in = nullptr;
    std::int64_t elements = 0;
  };
  virtual void add_all(std::span<const Addition> tensors) {
    for (const Addition& one : tensors) add(one.out, one.in, one.elements);
  }
  // A tensor at the same place of every arena. Without `decays` its weight decay is 0.
  struct ArenaTensor {
    std::int64_t offset = 0;
    std::int64_t elements = 0;
    bool decays = true;
  };
  // The arenas' arguments are those of adamw; low may be null.
  virtual void adamw_all(float* new_parameters, void* low, float* m, float* v, const float* parameters,
                         const float* gradients, std::span<const ArenaTensor> tensors, const AdamWScalars* scalars,
                         const AdamWConstants& constants, bool keep_moments) {
    for (const ArenaTensor& one : tensors) {
      void* copy = low == nullptr ? nullptr : static_cast<char*>(low) + one.offset * element_size(precision());
      adamw(new_parameters + one.offset, copy, m + one.offset, v + one.offset, parameters + one.offset,
            gradients + one.offset, scalars, constants.for_tensor(one.decays), keep_moments, one.elements);
    }
  }
  virtual void adamw_moments_all(float* m, float* v, const float* gradients, std::span<const ArenaTensor> tensors,
                                 const AdamWScalars* scalars, const AdamWConstants& constants) {
    for (const ArenaTensor& one : tensors) {
      adamw_moments(m + one.offset, v + one.offset, gradients + one.offset, scalars, constants.for_tensor(one.decays),
                    one.elements);
    }
  }
  // sums: of the first tensor's atoms, then of the second's ..
  virtual void squared_sums_all(double* sums, const float* x, std::span<const ArenaTensor> tensors) {
    for (const ArenaTensor& one : tensors) {
      squared_sums(sums, x + one.offset, one.elements);
      sums += (one.elements + kAtomElements - 1) / kAtomElements;
    }
  }
};

// The cpu device: fp32. threads >= 1.
std::unique_ptr<Device> make_cpu_device(int threads);

// The number of GPUs that this process may use and, if it is 0, the reason, for messages. This and the next function
// exist only in builds with CUDA (macro TRAIN_GPT_CUDA).
struct GpuCount {
  int count = 0;
  std::string reason;
};
GpuCount count_gpus();

// The cuda device on GPU local_rank mod count. Throws std::invalid_argument if no GPU is usable.
std::unique_ptr<Device> make_cuda_device(Precision precision, int local_rank = 0);

}  // namespace train_gpt

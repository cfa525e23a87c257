// The arithmetic on which a run's bits depend besides model, batch and accumulation groups: two runs of equal
// arithmetic may be compared bit for bit, whatever machines they ran on. It goes into checkpoints and logs, and ranks
// compare it before they train together.
#pragma once

#include <string>

namespace train_gpt {

// Raised by every change of the order or the formula of a sum in kernels/cpu or kernels/cuda.
// 1: products by OpenBLAS. 2: those of kernels/cpu/product.h. 3: the head is folded shard by shard of the vocabulary,
// and atoms of wte and headw restart at every shard's edge.
inline constexpr int kSummationRules = 3;

struct Arithmetic {
  std::string library;    // for matrix products: "C++ kernels", "cuBLASLt 120800"
  std::string processor;  // "any with fused multiply-adds", "NVIDIA H200 (compute capability 9.0)"
  std::string precision;  // "fp32", "bf16"
  int summation_rules = kSummationRules;

  bool operator==(const Arithmetic&) const = default;
};

// One line for people and for comparisons of files: "C++ kernels, any with fused multiply-adds, fp32, summation rules
// 3".
inline std::string to_string(const Arithmetic& arithmetic) {
  return arithmetic.library + ", " + arithmetic.processor + ", " + arithmetic.precision + ", summation rules " +
         std::to_string(arithmetic.summation_rules);
}

}  // namespace train_gpt

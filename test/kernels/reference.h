// The operations of kernels/device.h as plain loops in double: what the devices are compared with. Backward formulas
// are themselves compared with central differences of the forward ones (reference_test.cpp).
#pragma once

#include <cstdint>
#include <vector>

namespace train_gpt::reference {

using Values = std::vector<double>;
using Index = std::int64_t;

struct LayerNorm {
  Values out, mean, rstd;
};
LayerNorm layernorm(const Values& in, const Values& weight, const Values& bias, Index N, Index C);
struct LayerNormGradient {
  Values din, dweight, dbias;
};
LayerNormGradient layernorm_backward(const Values& dout, const Values& in, const Values& weight, Index N, Index C);

double gelu(double x);
double gelu_derivative(double x);

// in(N,C) weight(OC,C)^T + bias(OC)
Values matmul(const Values& in, const Values& weight, const Values& bias, Index N, Index C, Index OC);
Values matmul_backward_input(const Values& dout, const Values& weight, Index N, Index C, Index OC);
Values matmul_backward_weight(const Values& dout, const Values& in, Index N, Index C, Index OC);

struct Attention {
  Values out, lse;
};
Attention attention(const Values& qkv, Index B, Index T, Index C, Index NH);
Values attention_backward(const Values& dout, const Values& qkv, Index B, Index T, Index C, Index NH);

struct CrossEntropy {
  Values losses, dlogits;
};
CrossEntropy cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets, double dloss, Index rows,
                           Index V, Index Vp);

struct AdamW {
  Values parameter, m, v;
};
struct AdamWStep {
  double learning_rate, beta1, beta2, eps, weight_decay, beta1_correction, beta2_correction, gradient_scale;
};
AdamW adamw(const Values& parameter, const Values& m, const Values& v, const Values& gradient, const AdamWStep& step);

}  // namespace train_gpt::reference

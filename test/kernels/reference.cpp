#include "test/kernels/reference.h"

#include <algorithm>
#include <cmath>

namespace train_gpt::reference {

LayerNorm layernorm(const Values& in, const Values& weight, const Values& bias, Index N, Index C) {
  LayerNorm result{Values(in.size()), Values(N), Values(N)};
  const auto width = static_cast<double>(C);
  for (Index n = 0; n < N; ++n) {
    double mean = 0, variance = 0;
    for (Index c = 0; c < C; ++c) mean += in[n * C + c] / width;
    for (Index c = 0; c < C; ++c) variance += (in[n * C + c] - mean) * (in[n * C + c] - mean) / width;
    const double rstd = 1 / std::sqrt(variance + 1e-5);
    for (Index c = 0; c < C; ++c) result.out[n * C + c] = (in[n * C + c] - mean) * rstd * weight[c] + bias[c];
    result.mean[n] = mean;
    result.rstd[n] = rstd;
  }
  return result;
}

LayerNormGradient layernorm_backward(const Values& dout, const Values& in, const Values& weight, Index N, Index C) {
  const LayerNorm forward = layernorm(in, weight, Values(C), N, C);
  LayerNormGradient result{Values(in.size()), Values(C), Values(C)};
  const auto width = static_cast<double>(C);
  for (Index n = 0; n < N; ++n) {
    double mean_g = 0, mean_g_xhat = 0;
    const auto xhat = [&](Index c) { return (in[n * C + c] - forward.mean[n]) * forward.rstd[n]; };
    for (Index c = 0; c < C; ++c) {
      const double g = dout[n * C + c] * weight[c];
      mean_g += g / width;
      mean_g_xhat += g * xhat(c) / width;
      result.dweight[c] += dout[n * C + c] * xhat(c);
      result.dbias[c] += dout[n * C + c];
    }
    for (Index c = 0; c < C; ++c) {
      result.din[n * C + c] = forward.rstd[n] * (dout[n * C + c] * weight[c] - mean_g - xhat(c) * mean_g_xhat);
    }
  }
  return result;
}

namespace {

const double kRoot = std::sqrt(2 / std::acos(-1.0));

}  // namespace

double gelu(double x) { return 0.5 * x * (1 + std::tanh(kRoot * (x + 0.044715 * x * x * x))); }

double gelu_derivative(double x) {
  const double t = std::tanh(kRoot * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot * (1 + 3 * 0.044715 * x * x);
}

Values matmul(const Values& in, const Values& weight, const Values& bias, Index N, Index C, Index OC) {
  Values out(N * OC);
  for (Index n = 0; n < N; ++n) {
    for (Index o = 0; o < OC; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (Index c = 0; c < C; ++c) sum += in[n * C + c] * weight[o * C + c];
      out[n * OC + o] = sum;
    }
  }
  return out;
}

Values matmul_backward_input(const Values& dout, const Values& weight, Index N, Index C, Index OC) {
  Values din(N * C);
  for (Index n = 0; n < N; ++n) {
    for (Index o = 0; o < OC; ++o) {
      for (Index c = 0; c < C; ++c) din[n * C + c] += dout[n * OC + o] * weight[o * C + c];
    }
  }
  return din;
}

Values matmul_backward_weight(const Values& dout, const Values& in, Index N, Index C, Index OC) {
  Values dweight(OC * C);
  for (Index n = 0; n < N; ++n) {
    for (Index o = 0; o < OC; ++o) {
      for (Index c = 0; c < C; ++c) dweight[o * C + c] += dout[n * OC + o] * in[n * C + c];
    }
  }
  return dweight;
}

namespace {

// Softmax of query t's scores over keys 0..t, and their log-sum-exp.
Values probabilities(const Values& qkv, Index b, Index h, Index t, Index T, Index C, Index hd, double* lse) {
  Values p(t + 1);
  const auto at = [&](Index position, Index part, Index c) {
    return qkv[((b * T + position) * 3 + part) * C + h * hd + c];
  };
  for (Index s = 0; s <= t; ++s) {
    for (Index c = 0; c < hd; ++c) p[s] += at(t, 0, c) * at(s, 1, c);
    p[s] /= std::sqrt(static_cast<double>(hd));
  }
  const double largest = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (const double score : p) sum += std::exp(score - largest);
  *lse = largest + std::log(sum);
  for (double& score : p) score = std::exp(score - *lse);
  return p;
}

}  // namespace

Attention attention(const Values& qkv, Index B, Index T, Index C, Index NH) {
  Attention result{Values(B * T * C), Values(B * NH * T)};
  const Index hd = C / NH;
  for (Index b = 0; b < B; ++b) {
    for (Index h = 0; h < NH; ++h) {
      for (Index t = 0; t < T; ++t) {
        const Values p = probabilities(qkv, b, h, t, T, C, hd, &result.lse[(b * NH + h) * T + t]);
        for (Index s = 0; s <= t; ++s) {
          for (Index c = 0; c < hd; ++c) {
            result.out[(b * T + t) * C + h * hd + c] += p[s] * qkv[((b * T + s) * 3 + 2) * C + h * hd + c];
          }
        }
      }
    }
  }
  return result;
}

Values attention_backward(const Values& dout, const Values& qkv, Index B, Index T, Index C, Index NH) {
  Values dqkv(qkv.size());
  const Index hd = C / NH;
  const double scale = 1 / std::sqrt(static_cast<double>(hd));
  for (Index b = 0; b < B; ++b) {
    for (Index h = 0; h < NH; ++h) {
      const auto index = [&](Index t, Index part, Index c) { return ((b * T + t) * 3 + part) * C + h * hd + c; };
      for (Index t = 0; t < T; ++t) {
        double lse = 0, delta = 0;
        const Values p = probabilities(qkv, b, h, t, T, C, hd, &lse);
        const double* g = &dout[(b * T + t) * C + h * hd];
        Values dp(t + 1);
        for (Index s = 0; s <= t; ++s) {
          for (Index c = 0; c < hd; ++c) {
            dp[s] += g[c] * qkv[index(s, 2, c)];
            dqkv[index(s, 2, c)] += p[s] * g[c];
          }
          delta += p[s] * dp[s];
        }
        for (Index s = 0; s <= t; ++s) {
          const double ds = p[s] * (dp[s] - delta) * scale;
          for (Index c = 0; c < hd; ++c) {
            dqkv[index(t, 0, c)] += ds * qkv[index(s, 1, c)];
            dqkv[index(s, 1, c)] += ds * qkv[index(t, 0, c)];
          }
        }
      }
    }
  }
  return dqkv;
}

CrossEntropy cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets, double dloss, Index rows,
                           Index V, Index Vp) {
  CrossEntropy result{Values(rows), Values(rows * Vp)};
  for (Index r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    const double* x = &logits[r * Vp];
    const double largest = *std::max_element(x, x + V);
    double sum = 0;
    for (Index i = 0; i < V; ++i) sum += std::exp(x[i] - largest);
    result.losses[r] = std::log(sum) + largest - x[targets[r]];
    for (Index i = 0; i < V; ++i) {
      result.dlogits[r * Vp + i] = dloss * (std::exp(x[i] - largest) / sum - (i == targets[r] ? 1 : 0));
    }
  }
  return result;
}

AdamW adamw(const Values& parameter, const Values& m, const Values& v, const Values& gradient, const AdamWStep& step) {
  AdamW result{parameter, m, v};
  for (std::size_t i = 0; i < parameter.size(); ++i) {
    const double g = gradient[i] * step.gradient_scale;
    result.m[i] = step.beta1 * m[i] + (1 - step.beta1) * g;
    result.v[i] = step.beta2 * v[i] + (1 - step.beta2) * g * g;
    const double m_hat = result.m[i] / step.beta1_correction, v_hat = result.v[i] / step.beta2_correction;
    result.parameter[i] -=
        step.learning_rate * (m_hat / (std::sqrt(v_hat) + step.eps) + step.weight_decay * parameter[i]);
  }
  return result;
}

}  // namespace train_gpt::reference

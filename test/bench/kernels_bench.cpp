// Time of each operation within a training step of GPT-2 124M (4 sequences of 64), and how the whole compares with the
// step's own matrix products run back to back. Every layer has its
// own weights, gradients and activations, so that caches are as cold as in training.
//
//   build/kernels_bench [threads] [repetitions] [layers]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace train_gpt {
namespace {

using Index = std::int64_t;
using Clock = std::chrono::steady_clock;

constexpr Index B = 4, T = 64, C = 768, NH = 12, V = 50257, Vp = 50304, N = B * T, kMaxT = 1024;

double milliseconds(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One call: what it computes or moves, and, for a product, its sizes for the comparison.
struct Call {
  std::string name;
  double flops = 0;
  double bytes = 0;
  std::function<void()> run;
  std::function<void()> plain = nullptr;  // a product without what is fused into it
};

class Step {
 public:
  Step(Device& device, Index layers) : device_(device) {
    const Index bytes = device.workspace_bytes(B, T, C, NH, Vp);
    device.use_workspace(device.allocate(bytes), bytes);
    tokens_.resize(N);
    for (Index i = 0; i < N; ++i) tokens_[i] = static_cast<std::int32_t>(i * 7919 % V);
    embedding();
    for (Index layer = 0; layer < layers; ++layer) forward(layer);
    head();
    for (Index layer = layers - 1; layer >= 0; --layer) backward(layer);
    calls_.push_back({"embedding backward", 0, 4.0 * 5 * N * C, [=, this] {
                        device_.embedding_backward(wte_gradient_, wpe_gradient_, dx_, tokens_.data(), B, T, C);
                      }});
    optimizer();
  }

  const std::vector<Call>& calls() const { return calls_; }

 private:
  // Weights of one linear layer and what its passes read and write.
  struct Linear {
    float *weight, *bias, *dweight, *dbias, *in, *out;
    Index inputs, outputs;
  };
  struct Layer {
    Linear qkv, projection, up, down;
    float *ln1, *ln2, *statistics, *attention_lse, *pre;
  };

  float* floats(Index n, float deviation) {
    auto* data = static_cast<float*>(device_.allocate(n * 4));
    const float table[8] = {-1.5F, -1, -0.5F, -0.1F, 0.1F, 0.5F, 1, 1.5F};
    std::uint32_t state = 1;
    for (Index i = 0; i < n; ++i) {
      state = state * 1664525U + 1013904223U;
      data[i] = deviation * table[state >> 29];
    }
    return data;
  }
  float* weights(Index n) {
    parameters_ += n;
    return floats(n, 0.02F);
  }
  Linear linear(float* in, Index inputs, Index outputs) {
    return {weights(inputs * outputs),
            weights(outputs),
            floats(inputs * outputs, 0),
            floats(outputs, 0),
            in,
            floats(N * outputs, 1),
            inputs,
            outputs};
  }

  void product(const std::string& name, Index rows, Index inner, Index columns, std::function<void()> run,
               std::function<void()> plain) {
    const double bytes = 4.0 * static_cast<double>(rows * inner + inner * columns + rows * columns);
    calls_.push_back(
        {name, 2.0 * static_cast<double>(rows * inner * columns), bytes, std::move(run), std::move(plain)});
  }
  void forward_product(const std::string& name, const Linear& l, std::function<void()> run) {
    product(name, N, l.inputs, l.outputs, std::move(run),
            [=, this] { device_.matmul_forward(l.out, l.in, l.weight, nullptr, N, l.inputs, l.outputs); });
  }
  void backward_products(const std::string& name, const Linear& l, float* din, const float* dout,
                         std::function<void()> run_input) {
    const auto plain = [=, this] { device_.matmul_backward_input(din, dout, l.weight, N, l.inputs, l.outputs); };
    product(name + " dX", N, l.outputs, l.inputs, run_input ? std::move(run_input) : plain, plain);
    const auto weight_gradient = [=, this](float* dbias) {  // of the first micro-batch, which is the only one here
      device_.matmul_first_backward_weight(l.dweight, dbias, l.in, dout, N, l.inputs, l.outputs);
    };
    product(
        name + " dW", l.outputs, N, l.inputs, [=] { weight_gradient(l.dbias); }, [=] { weight_gradient(nullptr); });
  }
  void layernorm_forward(float* out, float* in, float* statistics) {
    calls_.push_back({"LayerNorm forward", 0, 4.0 * 2 * N * C, [=, this] {
                        device_.layernorm_forward(out, statistics, statistics + N, in, scale_, shift_, N, C);
                      }});
  }
  void layernorm_backward(float* in, float* statistics) {
    calls_.push_back({"LayerNorm dX", 0, 4.0 * 4 * N * C, [=, this] {
                        device_.layernorm_backward_input(dx_, dnormal_, dx_, in, statistics, statistics + N, scale_, N,
                                                         C);
                      }});
    calls_.push_back({"LayerNorm dW", 0, 4.0 * 2 * N * C, [=, this] {
                        device_.layernorm_backward_weight(dscale_, dshift_, dnormal_, in, statistics, statistics + N, N,
                                                          C);
                      }});
  }

  void embedding() {
    wte_ = weights(Vp * C);
    wpe_ = weights(kMaxT * C);
    wte_gradient_ = floats(Vp * C, 0);
    wpe_gradient_ = floats(kMaxT * C, 0);
    scale_ = floats(C, 1), shift_ = floats(C, 1), dscale_ = floats(C, 0), dshift_ = floats(C, 0);
    x_ = floats(N * C, 1), dx_ = floats(N * C, 1), dnormal_ = floats(N * C, 1), dwide_ = floats(N * 4 * C, 1);
    calls_.push_back({"embedding forward", 0, 4.0 * 3 * N * C,
                      [=, this] { device_.embedding_forward(x_, tokens_.data(), wte_, wpe_, B, T, C); }});
  }

  void forward(Index index) {
    Layer l{};
    l.ln1 = x_;
    l.statistics = floats(4 * N, 1);
    l.attention_lse = floats(B * NH * T, 1);
    l.qkv = linear(floats(N * C, 1), C, 3 * C);
    l.projection = linear(floats(N * C, 1), C, C);
    l.ln2 = l.projection.out;
    l.up = linear(floats(N * C, 1), C, 4 * C);
    l.pre = floats(N * 4 * C, 1);
    l.down = linear(l.up.out, 4 * C, C);
    layernorm_forward(l.qkv.in, l.ln1, l.statistics);
    forward_product("qkv forward", l.qkv,
                    [=, this] { device_.matmul_forward(l.qkv.out, l.qkv.in, l.qkv.weight, l.qkv.bias, N, C, 3 * C); });
    calls_.push_back({"attention forward", 2.0 * B * T * T * C, 4.0 * 4 * N * C, [=, this] {
                        device_.attention_forward(l.projection.in, l.attention_lse, l.qkv.out, B, T, C, NH);
                      }});
    forward_product("projection + residual forward", l.projection, [=, this] {
      device_.matmul_residual_forward(l.ln2, l.projection.in, l.projection.weight, l.projection.bias, l.ln1, N, C, C);
    });
    layernorm_forward(l.up.in, l.ln2, l.statistics + 2 * N);
    forward_product("up + gelu forward", l.up, [=, this] {
      device_.matmul_gelu_forward(l.up.out, l.pre, l.up.in, l.up.weight, l.up.bias, N, C, 4 * C);
    });
    forward_product("down + residual forward", l.down, [=, this] {
      device_.matmul_residual_forward(l.down.out, l.down.in, l.down.weight, l.down.bias, l.ln2, N, 4 * C, C);
    });
    x_ = l.down.out;
    layers_.resize(static_cast<std::size_t>(index) + 1);
    layers_.back() = l;
  }

  // The shards of the classifier, streamed in one chunk: F of all, then what follows the last one, then W of all.
  void head() {
    constexpr Index kWidth = 2048;
    float* statistics = floats(2 * N, 1);
    float* const in = floats(N * C, 1);
    float* const rows = floats(4 * N, 1);
    head_gradient_ = floats(Vp * C, 0);
    const SoftmaxFold fold{rows, rows + N, rows + 2 * N, dnormal_};
    float* const then = rows + 3 * N;
    layernorm_forward(in, x_, statistics);
    std::vector<VocabularyShard> shards;
    for (Index begin = 0; begin < Vp; begin += kWidth) {
      const Index end = std::min(begin + kWidth, Vp);
      shards.push_back({begin, end - begin, std::min(end, V) - begin});
    }
    float* const exponentials = floats(N * Vp, 1);
    for (const VocabularyShard& shard : shards) {
      const bool first = shard.begin == 0;
      float *weight = wte_ + shard.begin * C, *e = exponentials + N * shard.begin;
      const Linear l{weight, nullptr, nullptr, nullptr, in, e, C, shard.width};
      forward_product("scores", l, [=, this] { device_.shard_scores(e, in, weight, N, C, shard.width); });
      calls_.push_back({"fold scores", 0, 4.0 * 2 * static_cast<double>(N * shard.width),
                        [=, this] { device_.fold_scores(fold, e, then, e, tokens_.data(), shard, first, N, C); }});
      product(
          "mixture", N, shard.width, C,
          [=, this] { device_.shard_mixture(dnormal_, e, weight, first, N, C, shard.width); },
          [=, this] { device_.matmul_backward_input(dnormal_, e, weight, N, C, shard.width); });
    }
    calls_.push_back({"finish cross-entropy", 0, 4.0 * 2 * N * C,
                      [=, this] { device_.finish_cross_entropy(then, fold, tokens_.data(), 1.0F / N, N, C); }});
    for (const VocabularyShard& shard : shards) {
      float *e = exponentials + N * shard.begin, *dweight = head_gradient_ + shard.begin * C;
      calls_.push_back({"score gradients", 0, 4.0 * 2 * static_cast<double>(N * shard.width), [=, this] {
                          device_.score_gradients(e, e, then, rows, rows + N, tokens_.data(), 1.0F / N, shard, N);
                        }});
      const auto gradient = [=, this] {
        device_.matmul_first_backward_weight(dweight, nullptr, in, e, N, C, shard.width);
      };
      product("scores dW", shard.width, N, C, gradient, gradient);
    }
    layernorm_backward(x_, statistics);
  }

  void backward(Index index) {
    const Layer l = layers_[static_cast<std::size_t>(index)];
    backward_products("down + gelu", l.down, dwide_, dx_, [=, this] {
      device_.matmul_gelu_backward_input(dwide_, dx_, l.down.weight, l.pre, N, 4 * C, C);
    });
    backward_products("up", l.up, dnormal_, dwide_, nullptr);
    layernorm_backward(l.ln2, l.statistics + 2 * N);
    backward_products("projection", l.projection, dnormal_, dx_, nullptr);
    calls_.push_back({"attention backward", 5.0 * B * T * T * C, 4.0 * 8 * N * C, [=, this] {
                        device_.attention_backward(dwide_, dnormal_, l.qkv.out, l.projection.in, l.attention_lse, B, T,
                                                   C, NH);
                      }});
    backward_products("qkv", l.qkv, dnormal_, dwide_, nullptr);
    layernorm_backward(l.ln1, l.statistics);
  }

  void optimizer() {
    const Index n = parameters_;
    float *parameters = floats(n, 0.02F), *gradients = floats(n, 1e-3F), *m = floats(n, 0), *v = floats(n, 0);
    sums_.resize(static_cast<std::size_t>(n / kAtomElements + 1));
    const auto bytes = [](double per_element, Index count) { return per_element * static_cast<double>(count); };
    calls_.push_back({"add tied gradients", 0, bytes(12, Vp * C),
                      [=, this] { device_.add(wte_gradient_, head_gradient_, Vp * C); }});
    calls_.push_back(
        {"gradient norm", 0, bytes(4, n), [=, this] { device_.squared_sums(sums_.data(), gradients, n); }});
    scalars_.learning_rate = 1e-9F;
    calls_.push_back({"AdamW", 0, bytes(28, n), [=, this] {
                        device_.adamw(parameters, nullptr, m, v, parameters, gradients, &scalars_, {}, false, n);
                      }});
    // The first micro-batch sets the gradients of the matrices; of the rest only the embedding's are worth mentioning.
    calls_.push_back({"zero embedding gradients", 0, bytes(4, (Vp + kMaxT) * C), [=, this] {
                        device_.zero(wte_gradient_, Vp * C * 4);
                        device_.zero(wpe_gradient_, kMaxT * C * 4);
                      }});
  }

  Device& device_;
  std::vector<Call> calls_;
  std::vector<Layer> layers_;
  std::vector<std::int32_t> tokens_;
  std::vector<double> sums_;
  AdamWScalars scalars_;
  Index parameters_ = 0;
  float *wte_ = nullptr, *wpe_ = nullptr, *wte_gradient_ = nullptr, *wpe_gradient_ = nullptr, *head_gradient_ = nullptr;
  float *scale_ = nullptr, *shift_ = nullptr, *dscale_ = nullptr, *dshift_ = nullptr;
  float *x_ = nullptr, *dx_ = nullptr, *dnormal_ = nullptr, *dwide_ = nullptr;
};

// Times per step of calls with equal names, in order of first appearance.
struct Row {
  std::string name;
  int calls = 0;
  double flops = 0, bytes = 0;
  std::vector<double> ms;
};

void report(std::vector<Row> rows, const std::vector<double>& products) {
  double total = 0, flops = 0, product_ms = 0;
  for (const Row& row : rows) total += median(row.ms);
  std::printf("%-30s %5s %9s %7s %9s %8s\n", "operation", "calls", "ms/step", "share", "GFLOP/s", "GB/s");
  for (const Row& row : rows) {
    const double ms = median(row.ms);
    std::printf("%-30s %5d %9.2f %6.1f%%", row.name.c_str(), row.calls, ms, 100 * ms / total);
    row.flops > 0 ? std::printf(" %9.1f", row.flops / ms * 1e-6) : std::printf(" %9s", "");
    std::printf(" %8.1f\n", row.bytes / ms * 1e-6);
    if (row.flops > 0 && row.name.find("attention") == std::string::npos) flops += row.flops, product_ms += ms;
  }
  const double step_rate = flops / total * 1e-6;
  std::printf("%-30s %5s %9.2f %7s %9.1f   = %.0f tokens/s\n", "sum of all", "", total, "", step_rate,
              static_cast<double>(N) / total * 1e3);
  std::printf("%-30s %5s %9.2f %7s %9.1f\n", "its products, fused", "", product_ms, "", flops / product_ms * 1e-6);
  std::printf("%-30s %5s %9.2f %7s %9.1f   step/this = %.3f\n", "products back to back", "", median(products), "",
              flops / median(products) * 1e-6, median(products) / total);
}

void run(int threads, int repetitions, Index layers) {
  const std::unique_ptr<Device> device = make_cpu_device(threads);
  std::printf("%s; GPT-2 with %d layers of 768, 4 sequences of 64; median of %d\n", device->describe().c_str(),
              static_cast<int>(layers), repetitions);
  const Step step(*device, layers);
  std::vector<Row> rows;
  std::map<std::string, std::size_t> row_of;
  std::vector<double> products;
  for (int repetition = -1; repetition < repetitions; ++repetition) {  // -1 warms up
    std::map<std::string, double> ms;
    for (const Call& call : step.calls()) {
      ms[call.name] += milliseconds(call.run);
      if (repetition >= 0) continue;
      const auto [at, added] = row_of.try_emplace(call.name, rows.size());
      if (added) rows.push_back({call.name, 0, 0, 0, {}});
      Row& row = rows[at->second];
      ++row.calls, row.flops += call.flops, row.bytes += call.bytes;
    }
    const double products_ms = milliseconds([&] {
      for (const Call& call : step.calls()) call.plain ? call.plain() : void();
    });
    if (repetition < 0) continue;
    for (Row& row : rows) row.ms.push_back(ms[row.name]);
    products.push_back(products_ms);
  }
  report(rows, products);
}

}  // namespace
}  // namespace train_gpt

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 5;
  const int layers = argc > 3 ? std::atoi(argv[3]) : 12;
  if (threads < 1 || repetitions < 1 || layers < 1) {
    std::fprintf(stderr, "usage: kernels_bench [threads] [repetitions] [layers]\n");
    return 2;
  }
  train_gpt::run(threads, repetitions, layers);
  return 0;
}

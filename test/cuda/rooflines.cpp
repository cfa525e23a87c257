// Every operation of the cuda device at the sizes of GPT-2 124M in bf16 (16 sequences of 1024), against what the card's
// memory and tensor cores allow: achieved GB/s and TFLOP/s by device events, and the part of the roofline that this is.
// Bytes and operations are those of the formula: every operand read once, every result written once.
//
//   rooflines [--small] [--seconds LIMIT] [--json FILE]        --small: tiny sizes, one run each, to try the program
//   itself
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "commands/run/gpu_peak.h"
#include "kernels/device.h"

namespace train_gpt {
namespace {

using Index = std::int64_t;

struct Sizes {
  Index B = 16, T = 1024, C = 768, NH = 12, V = 50257, Vp = 50304;
  Index head_rows = 4096;             // of one chunk of logits
  Index parameters = Index{1} << 26;  // of the optimizer's operations
  int runs = 20;
  Index N() const { return B * T; }
};

struct Operation {
  std::string name;
  double bytes = 0;
  double flops = 0;  // on tensor cores; 0 where memory alone matters
  std::function<void()> run;
};

// A card's limits: bytes per second from its clock and bus, FLOP/s from the table of cards.
struct Limits {
  double bytes_per_second = 0;
  std::optional<double> flops_per_second;
};

Limits limits_of(const Device& device) {
  int gpu = 0, clock_khz = 0, bus_bits = 0;
  cudaGetDevice(&gpu);
  cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, gpu);
  cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, gpu);
  return {2.0 * clock_khz * 1e3 * bus_bits / 8, peak_flops(device.describe(), Precision::bf16)};
}

class Operations {
 public:
  Operations(Device& device, const Sizes& sizes) : device_(device), s_(sizes) {
    const Index bytes = device.workspace_bytes(s_.B, s_.T, s_.C, s_.NH, s_.Vp);
    device.use_workspace(device.allocate(bytes), bytes);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(std::max(s_.N(), s_.head_rows)));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(static_cast<Index>(i) * 7919 % s_.V);
    }
    tokens_ = static_cast<std::int32_t*>(device.allocate(static_cast<Index>(ids.size()) * 4));
    device.to_device(tokens_, ids.data(), static_cast<Index>(ids.size()) * 4);
    const AdamWScalars scalars{1e-4F, 0.1F, 0.1F, 1.0F};
    scalars_ = static_cast<AdamWScalars*>(device.allocate(sizeof scalars));
    device.to_device(scalars_, &scalars, sizeof scalars);
    rows();
    products();
    attention();
    head();
    optimizer();
    device.synchronize();
  }

  const std::vector<Operation>& all() const { return all_; }

 private:
  // Normally distributed: a card draws less power on zeros, and runs faster.
  float* wide(Index n, float deviation = 1) {
    auto* out = static_cast<float*>(device_.allocate(n * 4));
    static std::vector<float> block;
    if (block.empty()) {
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      block.resize(std::size_t{1} << 20);
      for (float& x : block) x = normal(random);
    }
    std::vector<float> scaled(block.size());
    std::transform(block.begin(), block.end(), scaled.begin(), [&](float x) { return x * deviation; });
    const auto length = static_cast<Index>(scaled.size());
    device_.to_device(out, scaled.data(), std::min(n, length) * 4);
    for (Index at = length; at < n; at += length) device_.copy(out + at, out, std::min(length, n - at) * 4);
    return out;
  }
  void* low(Index n, float deviation = 1) {
    float* values = wide(n, deviation);
    void* out = device_.allocate(n * 2);
    device_.from_float(out, values, n);
    device_.synchronize();
    device_.release(values);
    return out;
  }
  void add(const std::string& name, double bytes, double flops, std::function<void()> run) {
    all_.push_back({name, bytes, flops, std::move(run)});
  }

  void rows() {
    const Index N = s_.N(), C = s_.C;
    const auto n = static_cast<double>(N * C);
    void *x = low(N * C), *out = low(N * C), *dout = low(N * C), *wte = low(s_.Vp * C), *wpe = low(s_.T * C);
    void *weight = low(C), *bias = low(C);
    float *dwte = wide(s_.Vp * C), *dwpe = wide(s_.T * C), *mean = wide(N), *rstd = wide(N), *dweight = wide(C),
          *dbias = wide(C);
    add("embedding forward", 4 * n, 0,
        [=, this] { device_.embedding_forward(out, tokens_, wte, wpe, s_.B, s_.T, s_.C); });
    add("embedding backward", 2 * n + 8 * n, 0,
        [=, this] { device_.embedding_backward(dwte, dwpe, dout, tokens_, s_.B, s_.T, s_.C); });
    add("layernorm forward", 4 * n, 0,
        [=, this] { device_.layernorm_forward(out, mean, rstd, x, weight, bias, N, C); });
    add("layernorm backward input", 8 * n, 0,
        [=, this] { device_.layernorm_backward_input(out, dout, wte, x, mean, rstd, weight, N, C); });
    add("layernorm backward weight", 4 * n, 0,
        [=, this] { device_.layernorm_backward_weight(dweight, dbias, dout, x, mean, rstd, N, C); });
  }

  // in(N,C) and out(N,OC): reads and writes of the operands, and 2 N C OC operations.
  void product(const std::string& name, Index C, Index OC, double extra_bytes, std::function<void()> run) {
    const auto N = static_cast<double>(s_.N());
    const auto c = static_cast<double>(C), oc = static_cast<double>(OC);
    add(name, 2 * (N * c + c * oc + N * oc) + extra_bytes, 2 * N * c * oc, std::move(run));
  }

  void products() {
    const Index N = s_.N(), C = s_.C;
    void *x = low(N * C), *y = low(N * C), *qkv = low(N * 3 * C), *h = low(N * 4 * C), *pre = low(N * 4 * C);
    void *wqkv = low(3 * C * C, 0.02F), *wproj = low(C * C, 0.02F), *wup = low(4 * C * C, 0.02F),
         *wdown = low(4 * C * C, 0.02F), *bias = low(4 * C);
    float *dw = wide(4 * C * C), *db = wide(4 * C);
    const auto nc = static_cast<double>(N * C);
    product("product qkv", C, 3 * C, 0, [=, this] { device_.matmul_forward(qkv, x, wqkv, bias, N, C, 3 * C); });
    product("product projection + residual", C, C, 2 * nc,
            [=, this] { device_.matmul_residual_forward(y, x, wproj, bias, x, N, C, C); });
    product("product up + gelu", C, 4 * C, 8 * nc,
            [=, this] { device_.matmul_gelu_forward(h, pre, x, wup, bias, N, C, 4 * C); });
    product("product down + residual", 4 * C, C, 2 * nc,
            [=, this] { device_.matmul_residual_forward(y, h, wdown, bias, x, N, 4 * C, C); });
    product("product qkv dx", C, 3 * C, 0, [=, this] { device_.matmul_backward_input(y, qkv, wqkv, N, C, 3 * C); });
    product("product down dx + dgelu", 4 * C, C, 8 * nc,
            [=, this] { device_.matmul_gelu_backward_input(h, x, wdown, pre, N, 4 * C, C); });
    product("product qkv dw + db", C, 3 * C, 6.0 * static_cast<double>(3 * C * C),
            [=, this] { device_.matmul_backward_weight(dw, db, x, qkv, N, C, 3 * C); });
    product("product up dw + db", C, 4 * C, 6.0 * static_cast<double>(4 * C * C),
            [=, this] { device_.matmul_backward_weight(dw, db, x, h, N, C, 4 * C); });
  }

  // Causal: half of the T x T scores. Forward 2 products of them, backward 5.
  void attention() {
    const Index N = s_.N(), C = s_.C;
    void *qkv = low(N * 3 * C), *out = low(N * C), *dout = low(N * C), *dqkv = low(N * 3 * C);
    float* lse = wide(s_.B * s_.NH * s_.T);
    const double product = static_cast<double>(s_.B * s_.T) * static_cast<double>(s_.T * s_.C);
    const auto nc = static_cast<double>(N * C);
    add("attention forward", 8 * nc, 2 * product,
        [=, this] { device_.attention_forward(out, lse, qkv, s_.B, s_.T, s_.C, s_.NH); });
    add("attention backward", 16 * nc, 5 * product,
        [=, this] { device_.attention_backward(dqkv, dout, qkv, out, lse, s_.B, s_.T, s_.C, s_.NH); });
  }

  // One shard of the vocabulary. Scores are fp32; the products read and write what lies between.
  void head() {
    const Index rows = s_.head_rows, C = s_.C;
    const VocabularyShard shard{0, std::min<Index>(2048, s_.Vp), std::min<Index>(2048, s_.V)};
    void *x = low(rows * C), *wte = low(shard.width * C, 0.02F), *exponentials = low(rows * shard.width);
    float *scores = wide(rows * shard.width), *mixture = wide(rows * C), *then = wide(rows), *din = wide(rows * C);
    const SoftmaxFold fold{wide(rows), wide(rows), wide(rows), mixture};
    const double r = static_cast<double>(rows), c = static_cast<double>(C), v = static_cast<double>(shard.width);
    add("product scores", 2 * (r * c + c * v) + 4 * r * v, 2 * r * c * v,
        [=, this] { device_.shard_scores(scores, x, wte, rows, C, shard.width); });
    add("fold scores", 6 * r * v, 0,
        [=, this] { device_.fold_scores(fold, exponentials, then, scores, tokens_, shard, /*first=*/true, rows, C); });
    add("product mixture", 2 * (r * v + c * v) + 8 * r * c, 2 * r * c * v,
        [=, this] { device_.shard_mixture(mixture, exponentials, wte, /*first=*/false, rows, C, shard.width); });
    add("finish cross-entropy", 8 * r * c, 0,
        [=, this] { device_.finish_cross_entropy(then, fold, tokens_, 1.0F, rows, C); });
    add("subtract targets", 10 * r * c, 0,
        [=, this] { device_.subtract_targets(din, wte, tokens_, 1e-4F, shard, rows, C); });
    add("score gradients", 4 * r * v, 0, [=, this] {
      device_.score_gradients(exponentials, exponentials, then, fold.largest, fold.sum, tokens_, 1e-4F, shard, rows);
    });
  }

  void optimizer() {
    const Index n = s_.parameters;
    const auto count = static_cast<double>(n);
    float *p = wide(n), *m = wide(n, 0.1F), *v = wide(n), *g = wide(n);
    device_.zero(v, n * 4);
    auto* sums = static_cast<double*>(device_.allocate((n / kAtomElements + 1) * 8));
    void* copy = low(n);
    const AdamWConstants constants{0.9F, 0.95F, 1e-8F, 0.1F};
    add("adamw", 30 * count, 0,
        [=, this] { device_.adamw(p, copy, m, v, p, g, scalars_, constants, /*keep_moments=*/false, n); });
    add("squared sums", 4 * count, 0, [=, this] { device_.squared_sums(sums, g, n); });
    add("add", 12 * count, 0, [=, this] { device_.add(p, g, n); });
    add("fp32 to bf16", 6 * count, 0, [=, this] { device_.from_float(copy, p, n); });
  }

  Device& device_;
  Sizes s_;
  std::int32_t* tokens_ = nullptr;
  AdamWScalars* scalars_ = nullptr;
  std::vector<Operation> all_;
};

// Median seconds of one call, by device events.
double seconds_of(Device& device, const Operation& operation, int runs) {
  for (int i = 0; i < std::min(runs, 3); ++i) operation.run();
  std::vector<Device::Mark> marks = {device.mark()};
  for (int i = 0; i < runs; ++i) {
    operation.run();
    marks.push_back(device.mark());
  }
  device.synchronize();
  std::vector<double> ms;
  for (int i = 0; i < runs; ++i) ms.push_back(device.time_ms(marks[i + 1]) - device.time_ms(marks[i]));
  std::nth_element(ms.begin(), ms.begin() + runs / 2, ms.end());
  return std::max(ms[runs / 2], 1e-6) / 1000;
}

int run(bool small, double limit_seconds, const char* json_path) {
  if (const GpuCount gpus = count_gpus(); gpus.count == 0) {
    std::printf("skipped: rooflines need a GPU, and %s\n", gpus.reason.c_str());
    return 0;
  }
  Sizes sizes;
  if (small) {
    sizes = {.B = 1, .T = 64, .C = 64, .NH = 1, .V = 130, .Vp = 256, .head_rows = 32, .parameters = 4096, .runs = 1};
  }
  const auto device = make_cuda_device(Precision::bf16);
  const Limits limits = limits_of(*device);
  const Operations operations(*device, sizes);
  std::FILE* json = json_path != nullptr ? std::fopen(json_path, "w") : nullptr;
  std::printf("%s\nlimits: %.0f GB/s%s\n", device->describe().c_str(), limits.bytes_per_second / 1e9,
              limits.flops_per_second
                  ? (", " + std::to_string(static_cast<int>(*limits.flops_per_second / 1e12)) + " TFLOP/s").c_str()
                  : "; FLOP/s of this card are not known");
  std::printf("%-30s %10s %9s %9s %14s\n", "operation", "us", "GB/s", "TFLOP/s", "of its limit");
  const double begin = device->time_ms(device->mark());
  int left_out = 0;
  for (const Operation& operation : operations.all()) {
    if (device->time_ms(device->mark()) - begin > 1000 * limit_seconds) {
      ++left_out;
      continue;
    }
    const double seconds = seconds_of(*device, operation, sizes.runs);
    const double by_memory = operation.bytes / limits.bytes_per_second;
    const double by_arithmetic = limits.flops_per_second ? operation.flops / *limits.flops_per_second : 0;
    const double part = std::max(by_memory, by_arithmetic) / seconds;
    const char* limit = by_arithmetic > by_memory ? "tensor cores" : "memory";
    std::printf("%-30s %10.1f %9.0f %9.1f %6.1f%% %s\n", operation.name.c_str(), seconds * 1e6,
                operation.bytes / seconds / 1e9, operation.flops / seconds / 1e12, 100 * part, limit);
    if (json != nullptr) {
      std::fprintf(json,
                   "{\"operation\":\"%s\",\"us\":%.3f,\"gb_per_s\":%.1f,\"tflop_per_s\":%.2f,\"of_limit\":%.4f,"
                   "\"limit\":\"%s\"}\n",
                   operation.name.c_str(), seconds * 1e6, operation.bytes / seconds / 1e9,
                   operation.flops / seconds / 1e12, part, limit);
    }
  }
  if (left_out > 0) std::printf("%d operations left out: %.0f s are over\n", left_out, limit_seconds);
  if (json != nullptr) std::fclose(json);
  return 0;
}

}  // namespace
}  // namespace train_gpt

int main(int argc, char** argv) {
  bool small = false;
  double seconds = 60;
  const char* json = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) {
      small = true;
    } else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "rooflines: error: unexpected '%s'\n", argv[i]);
      return 2;
    }
  }
  return train_gpt::run(small, seconds, json);
}

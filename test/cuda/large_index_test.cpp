// Index arithmetic beyond 2^31 elements. Buffers of gigabytes are one small piece of memory, mapped again and again
// (repeated_memory of the emulator's settings), and only the last blocks of a grid run: an index that wraps lies
// outside of the buffer, or fetches other numbers than a small run on those of the end. In the emulator only.
#include "device_properties.h"  // of the emulator
#include "test/cuda/cuda_fixture.h"

namespace train_gpt {
namespace {

constexpr std::int64_t kLimit = std::int64_t{1} << 31;
constexpr std::int64_t kPiece = std::int64_t{3}
                                << 20;  // bytes; not a power of two, so that what wraps finds other numbers

// A buffer that repeats `pattern` (kPiece bytes of floats, or as many bf16).
class Repeated {
 public:
  Repeated(Device& device, std::int64_t elements, std::uint32_t seed, std::int64_t element = 4)
      : device_(device), elements_(elements), element_(element) {
    data_ = static_cast<char*>(device.allocate(elements * element));
    Floats pattern = random_floats(kPiece / element, seed);
    for (float& x : pattern) x = std::abs(x);  // second moments are squares
    if (element == 4) {
      device.to_device(data_, pattern.data(), kPiece);
    } else {
      const Buffer wide(device, pattern);
      device.from_float(data_, const_cast<Buffer&>(wide), kPiece / element);
      device.synchronize();
    }
  }
  ~Repeated() { device_.release(data_); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  template <typename Float>
  operator Float*() {  // NOLINT: a buffer stands for its pointer
    return reinterpret_cast<Float*>(data_);
  }
  // The last `count` elements.
  Floats tail(std::int64_t count) {
    char* begin = data_ + (elements_ - count) * element_;
    Floats values(static_cast<std::size_t>(count));
    if (element_ == 4) {
      device_.to_host(values.data(), begin, count * 4);
      return values;
    }
    Buffer wide(device_, values);
    device_.to_float(wide, begin, count);
    return wide.values();
  }

 private:
  Device& device_;
  std::int64_t elements_, element_;
  char* data_ = nullptr;
};

class LargeIndex : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
#if defined(EMULATOR_RACE) || defined(EMULATOR_ASAN)
    GTEST_SKIP() << "gigabytes of addresses would take gigabytes of the checkers' own memory";
#endif
  }
  LargeIndex() {
    emulator::settings().repeated_memory = kPiece;
    emulator::device_properties().totalGlobalMem = std::size_t{1} << 40;
  }
  ~LargeIndex() override {
    emulator::settings() = before_;
    emulator::device_properties().totalGlobalMem = memory_;
  }
  // While `work` runs, only the last blocks of every grid run.
  template <typename Work>
  void at_the_end(const Work& work) {
    emulator::settings().last_blocks = 8;
    work();
    device_->synchronize();
    emulator::settings().last_blocks = 0;
  }
  void expect_same(const Floats& actual, const Floats& expected, const char* what) {
    EXPECT_TRUE(same_bits(actual, expected)) << what;
  }

  emulator::Settings before_ = emulator::settings();
  std::size_t memory_ = emulator::device_properties().totalGlobalMem;
  std::unique_ptr<Device> device_ = make_cuda_device(GetParam());
  std::int64_t element_ = element_size(GetParam());
};

TEST_P(LargeIndex, ElementByElement) {
  const std::int64_t n = kLimit + 4099, few = 499;  // from an aligned place to a ragged end
  Repeated out(*device_, n, 1), in(*device_, n, 2), narrow(*device_, n, 3, element_);
  Buffer small_out(*device_, out.tail(few)), small_in(*device_, in.tail(few));
  LowBuffer small_narrow(*device_, few);
  device_->from_float(small_narrow, small_in, few);
  device_->add(small_out, small_in, few);
  at_the_end([&] {
    device_->from_float(narrow, in, n);
    device_->add(out, in, n);
  });
  expect_same(out.tail(few), small_out.values(), "add");
  if (GetParam() == Precision::bf16) expect_same(narrow.tail(few), small_narrow.values(), "from_float");
}

TEST_P(LargeIndex, AdamW) {
  const std::int64_t n = kLimit + 4099, few = 499;  // from an aligned place to a ragged end
  Repeated p(*device_, n, 1), m(*device_, n, 2), v(*device_, n, 3), g(*device_, n, 4);
  Buffer small_p(*device_, p.tail(few)), small_m(*device_, m.tail(few)), small_v(*device_, v.tail(few)),
      small_g(*device_, g.tail(few));
  const AdamWScalars host{1e-3F, 1 - 0.81F, 1 - 0.9025F, 0.7F};
  auto* scalars = static_cast<AdamWScalars*>(device_->allocate(sizeof host));
  device_->to_device(scalars, &host, sizeof host);
  const AdamWConstants constants{0.9F, 0.95F, 1e-8F, 0.1F};
  device_->adamw(small_p, nullptr, small_m, small_v, small_p, small_g, scalars, constants, false, few);
  at_the_end([&] { device_->adamw(p, nullptr, m, v, p, g, scalars, constants, false, n); });
  expect_same(p.tail(few), small_p.values(), "parameters");
  expect_same(m.tail(few), small_m.values(), "first moments");
  expect_same(v.tail(few), small_v.values(), "second moments");
  device_->release(scalars);
}

TEST_P(LargeIndex, Embedding) {
  const std::int64_t C = 768, T = 1000, B = kLimit / (T * C) + 4, N = B * T;
  std::vector<std::int32_t> host_tokens(static_cast<std::size_t>(N), 3);
  host_tokens.back() = 7;
  const Tokens tokens(*device_, host_tokens);
  LowBuffer wte(*device_, random_floats(11 * C, 1)), wpe(*device_, random_floats(T * C, 2));
  Repeated out(*device_, N * C, 3, element_), dout(*device_, N * C, 4, element_);
  const std::int64_t workspace_bytes = device_->workspace_bytes(B, T, C, 1, 128);
  void* workspace = device_->allocate(workspace_bytes);
  device_->use_workspace(workspace, workspace_bytes);
  const Floats zeros(static_cast<std::size_t>(11 * C), 0), wide(static_cast<std::size_t>(T * C), 0);
  Buffer dwte(*device_, zeros), dwpe(*device_, wide);
  at_the_end([&] {
    device_->embedding_forward(out, tokens, wte, wpe, B, T, C);
    device_->embedding_backward(dwte, dwpe, dout, tokens, B, T, C);
  });
  // Position T - 1 of the last row.
  const Floats token = wte.values(), position = wpe.values(), written = out.tail(C);
  const Floats gradient = dout.tail(C), sums = dwte.values();
  for (std::int64_t c = 0; c < C; ++c) {
    const double expected = static_cast<double>(token[7 * C + c]) + static_cast<double>(position[(T - 1) * C + c]);
    EXPECT_NEAR(written[c], expected, 0.01 * std::abs(expected) + 1e-6) << c;
    EXPECT_EQ(sums[7 * C + c], gradient[c]) << c;
  }
  device_->release(workspace);
}

TEST_P(LargeIndex, LayerNorm) {
  const std::int64_t C = 768, N = kLimit / C + 9;
  Repeated in(*device_, N * C, 1, element_), out(*device_, N * C, 2, element_), dout(*device_, N * C, 3, element_),
      din(*device_, N * C, 4, element_);
  LowBuffer weight(*device_, random_floats(C, 5)), bias(*device_, random_floats(C, 6)), row(*device_, in.tail(C)),
      normal(*device_, C), drow(*device_, dout.tail(C)), dnormal(*device_, C);
  const Floats zeros(static_cast<std::size_t>(N), 0);
  Buffer mean(*device_, zeros), rstd(*device_, zeros), one_mean(*device_, {0}), one_rstd(*device_, {0});
  device_->layernorm_forward(normal, one_mean, one_rstd, row, weight, bias, 1, C);
  device_->layernorm_backward_input(dnormal, drow, nullptr, row, one_mean, one_rstd, weight, 1, C);
  at_the_end([&] {
    device_->layernorm_forward(out, mean, rstd, in, weight, bias, N, C);
    device_->layernorm_backward_input(din, dout, nullptr, in, mean, rstd, weight, N, C);
  });
  expect_same(out.tail(C), normal.values(), "out");
  expect_same(din.tail(C), dnormal.values(), "din");
}

TEST_P(LargeIndex, Attention) {
  const std::int64_t C = 64, NH = 1, T = 64, B = kLimit / (T * 3 * C) + 3, n = T * C;
  const std::int64_t workspace_bytes = device_->workspace_bytes(B, T, C, NH, 128);
  void* workspace = device_->allocate(workspace_bytes);
  device_->use_workspace(workspace, workspace_bytes);
  Repeated qkv(*device_, 3 * n * B, 1, element_), dqkv(*device_, 3 * n * B, 2, element_),
      out(*device_, n * B, 3, element_), dout(*device_, n * B, 4, element_), lse(*device_, B * NH * T, 5);
  LowBuffer one_qkv(*device_, qkv.tail(3 * n)), one_dqkv(*device_, 3 * n), one_out(*device_, n),
      one_dout(*device_, dout.tail(n));
  Buffer one_lse(*device_, Floats(static_cast<std::size_t>(T), 0));
  device_->attention_forward(one_out, one_lse, one_qkv, 1, T, C, NH);
  device_->attention_backward(one_dqkv, one_dout, one_qkv, one_out, one_lse, 1, T, C, NH);
  at_the_end([&] {
    device_->attention_forward(out, lse, qkv, B, T, C, NH);
    device_->attention_backward(dqkv, dout, qkv, out, lse, B, T, C, NH);
  });
  expect_same(out.tail(n), one_out.values(), "out");
  expect_same(dqkv.tail(3 * n), one_dqkv.values(), "dqkv");
  device_->release(workspace);
}

TEST_P(LargeIndex, CrossEntropy) {
  const VocabularyShard shard{.begin = 0, .width = 2048, .columns = 2001};
  const std::int64_t C = 2056, rows = kLimit / shard.width + 9;
  std::vector<std::int32_t> host_targets(static_cast<std::size_t>(rows), 3);
  host_targets.back() = 7;
  const Tokens targets(*device_, host_targets), last(*device_, {7});
  LowBuffer weight(*device_, random_floats(8 * C, 1));
  Repeated scores(*device_, rows * shard.width, 2), exponentials(*device_, rows * shard.width, 3, element_),
      mixture(*device_, rows * C, 4), largest(*device_, rows, 5), sum(*device_, rows, 6), at_target(*device_, rows, 7),
      largest_then(*device_, rows, 8), losses(*device_, rows, 9);
  Buffer small_scores(*device_, scores.tail(shard.width)), small_mixture(*device_, mixture.tail(C)),
      small_largest(*device_, largest.tail(1)), small_sum(*device_, sum.tail(1)),
      small_at_target(*device_, at_target.tail(1)), small_then(*device_, {0}), small_loss(*device_, {0});
  LowBuffer small_exponentials(*device_, shard.width);
  const auto chain = [&](const SoftmaxFold& fold, void* e, float* then, float* y, const std::int32_t* at, float* loss,
                         std::int64_t count) {
    device_->fold_scores(fold, e, then, y, at, shard, /*first=*/false, count, C);
    device_->score_exponentials(e, y, then, shard, count);
    device_->finish_cross_entropy(loss, fold, at, 0.5F, count, C);
    device_->subtract_targets(fold.mixture, weight, at, 0.5F, shard, count, C);
    device_->score_gradients(e, e, then, fold.largest, fold.sum, at, 0.5F, shard, count);
  };
  chain({small_largest, small_sum, small_at_target, small_mixture}, small_exponentials, small_then, small_scores, last,
        small_loss, 1);
  at_the_end([&] {
    chain({largest, sum, at_target, mixture}, exponentials, largest_then, scores, targets, losses, rows);
  });
  expect_same(losses.tail(1), small_loss.values(), "losses");
  expect_same(mixture.tail(C), small_mixture.values(), "mixture");
  expect_same(exponentials.tail(shard.width), small_exponentials.values(), "gradients of the scores");
}

TEST_P(LargeIndex, SquaredSums) {
  const std::int64_t n = kLimit + 4099, atoms = (n + kAtomElements - 1) / kAtomElements, few = n % kAtomElements;
  Repeated x(*device_, n, 1);
  Buffer small(*device_, x.tail(few));
  auto* sums = static_cast<double*>(device_->allocate((atoms + 1) * 8));
  device_->squared_sums(sums + atoms, small, few);
  at_the_end([&] { device_->squared_sums(sums, x, n); });
  double of_all[2] = {0, 1};
  device_->to_host(of_all, sums + atoms - 1, sizeof of_all);
  EXPECT_EQ(of_all[0], of_all[1]);
  device_->release(sums);
}

INSTANTIATE_TEST_SUITE_P(Large, LargeIndex, testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace train_gpt

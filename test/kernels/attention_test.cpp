#include <tuple>

#include "test/kernels/device_fixture.h"

namespace train_gpt {
namespace {

struct Sizes {
  std::int64_t B, T, C, NH;
};
// Sequences of one position, inside one block, one past a block, and longer than the long side of a block (256).
const Sizes kSizes[] = {{1, 1, 4, 1}, {3, 3, 15, 3}, {1, 64, 64, 1}, {2, 65, 36, 2}, {1, 129, 66, 3}, {1, 330, 24, 2}};

class AttentionTest : public testing::TestWithParam<Sizes> {};

TEST_P(AttentionTest, AgreesWithReference) {
  const auto [B, T, C, NH] = GetParam();
  CpuFixture cpu(2, B, T, C, NH);
  Device& device = *cpu;
  const Floats qkv_values = random_floats(B * T * 3 * C, 1), dout_values = random_floats(B * T * C, 2);
  Buffer qkv(device, qkv_values), out(device, dout_values), lse(device, Floats(B * NH * T)), dout(device, dout_values),
      dqkv(device, Floats(qkv_values.size(), NAN));
  device.attention_forward(out, lse, qkv, B, T, C, NH);
  const reference::Attention expected = reference::attention(doubles(qkv_values), B, T, C, NH);
  expect_close(out.values(), expected.out, 3e-6, "out");
  expect_close(lse.values(), expected.lse, 3e-6, "lse");
  device.attention_backward(dqkv, dout, qkv, out, lse, B, T, C, NH);
  expect_close(dqkv.values(), reference::attention_backward(doubles(dout_values), doubles(qkv_values), B, T, C, NH),
               1e-5, "dqkv");
}

INSTANTIATE_TEST_SUITE_P(Sizes, AttentionTest, testing::ValuesIn(kSizes));

TEST(Attention, ScoresOfThousandsStayFinite) {
  const std::int64_t B = 1, T = 70, C = 16, NH = 1;
  CpuFixture cpu(1, B, T, C, NH);
  Device& device = *cpu;
  const Floats qkv_values = random_floats(B * T * 3 * C, 1, 60);
  Buffer qkv(device, qkv_values), out(device, Floats(B * T * C)), lse(device, Floats(B * NH * T)),
      dout(device, random_floats(B * T * C, 2)), dqkv(device, qkv_values);
  device.attention_forward(out, lse, qkv, B, T, C, NH);
  device.attention_backward(dqkv, dout, qkv, out, lse, B, T, C, NH);
  const reference::Attention expected = reference::attention(doubles(qkv_values), B, T, C, NH);
  expect_close(out.values(), expected.out, 1e-3, "out");
  for (const float x : dqkv.values()) ASSERT_TRUE(std::isfinite(x));
}

// The future of a position must not reach it: NaN there shows any leak.
TEST(Attention, IsCausal) {
  const std::int64_t B = 1, T = 300, C = 16, NH = 2;
  CpuFixture cpu(2, B, T, C, NH);
  Device& device = *cpu;
  Floats values = random_floats(B * T * 3 * C, 1);
  Buffer whole(device, values), out(device, Floats(B * T * C)), lse(device, Floats(B * NH * T));
  device.attention_forward(out, lse, whole, B, T, C, NH);
  const Floats before = out.values();
  for (std::int64_t i = 200 * 3 * C; i < T * 3 * C; ++i) values[i] = 1000;
  Buffer changed(device, values);
  device.attention_forward(out, lse, changed, B, T, C, NH);
  const Floats after = out.values();
  EXPECT_TRUE(
      same_bits(Floats(before.begin(), before.begin() + 200 * C), Floats(after.begin(), after.begin() + 200 * C)));
}

// Long sequences in few columns, where no product needs more scratch than attention does.
TEST(Attention, StaysWithinTheWorkspaceThatItAsksFor) {
  const std::int64_t B = 1, C = 4, NH = 1;
  for (const std::int64_t T : {40, 300, 700}) {
    const std::unique_ptr<Device> device = make_cpu_device(1);
    const std::int64_t bytes = device->workspace_bytes(B, T, C, NH, 128);
    constexpr std::int64_t kGuard = 1024;
    Buffer memory(*device, Floats(static_cast<std::size_t>(bytes / 4 + kGuard), 77.0F));
    device->use_workspace(memory, bytes);
    Buffer qkv(*device, random_floats(B * T * 3 * C, 1)), out(*device, Floats(B * T * C)), lse(*device, Floats(B * T)),
        dout(*device, random_floats(B * T * C, 2)), dqkv(*device, Floats(B * T * 3 * C));
    device->attention_forward(out, lse, qkv, B, T, C, NH);
    device->attention_backward(dqkv, dout, qkv, out, lse, B, T, C, NH);
    const Floats after = memory.values();
    for (std::int64_t i = bytes / 4; i < bytes / 4 + kGuard; ++i) {
      ASSERT_EQ(after[static_cast<std::size_t>(i)], 77.0F)
          << "T " << T << ", " << i - bytes / 4 << " floats past the end";
    }
  }
}

// Rows (NH,T) from position `first` on.
Floats positions_from(const Floats& rows, std::int64_t NH, std::int64_t T, std::int64_t first) {
  Floats result;
  for (std::int64_t h = 0; h < NH; ++h)
    result.insert(result.end(), rows.begin() + h * T + first, rows.begin() + (h + 1) * T);
  return result;
}

// Generation computes the new positions of a text alone.
TEST(Attention, SomeQueriesHaveTheBitsThatTheyHaveAmongAll) {
  for (const auto& [hd, NH, threads] : {std::tuple{20, 3, 1}, {64, 2, 2}, {136, 1, 2}}) {
    for (const std::int64_t T : {1, 2, 63, 64, 65, 130, 256, 257, 330, 600}) {
      const std::int64_t C = hd * NH;
      CpuFixture cpu(threads, 1, T, C, NH);
      Device& device = *cpu;
      Buffer qkv(device, random_floats(T * 3 * C, 1, 3)), out(device, Floats(T * C)), lse(device, Floats(NH * T));
      device.attention_forward(out, lse, qkv, 1, T, C, NH);
      const Floats whole = out.values();
      for (const std::int64_t first : {T - 1, T - 2, T / 2, T / 64 * 64, T / 256 * 256 - 3, std::int64_t{1}}) {
        if (first < 0 || first >= T) continue;
        Buffer some(device, Floats((T - first) * C, NAN)), some_lse(device, Floats(NH * (T - first), NAN));
        device.attention_forward_from(some, some_lse, qkv, first, T, C, NH);
        EXPECT_TRUE(same_bits(some.values(), Floats(whole.begin() + first * C, whole.end()))) << T << " from " << first;
        EXPECT_TRUE(same_bits(some_lse.values(), positions_from(lse.values(), NH, T, first))) << T << " from " << first;
      }
    }
  }
}

TEST(Attention, BitsDoNotDependOnThreads) {
  const std::int64_t B = 2, T = 321, C = 60, NH = 3;
  expect_same_bits_for_any_threads("attention", T, [&](Device& device) {
    Buffer qkv(device, random_floats(B * T * 3 * C, 1)), out(device, Floats(B * T * C)),
        lse(device, Floats(B * NH * T)), dout(device, random_floats(B * T * C, 2)), dqkv(device, Floats(B * T * 3 * C));
    device.attention_forward(out, lse, qkv, B, T, C, NH);
    device.attention_backward(dqkv, dout, qkv, out, lse, B, T, C, NH);
    Floats all = out.values();
    const Floats gradient = dqkv.values();
    all.insert(all.end(), gradient.begin(), gradient.end());
    return all;
  });
}

}  // namespace
}  // namespace train_gpt

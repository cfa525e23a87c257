// The product of the cpu device against its definition in product.h, bit by bit.
#include "kernels/cpu/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "test/kernels/device_fixture.h"

namespace train_gpt::cpu {
namespace {

struct Sizes {
  std::int64_t rows, columns, depth;
};

// The definition, word for word.
Floats by_definition(Destination to, const Floats& before, Factor left, Factor right, Sizes sizes) {
  Floats out = before;
  const std::int64_t blocks = (sizes.depth + kDepthBlock - 1) / kDepthBlock;
  const std::int64_t block = ((sizes.depth + blocks - 1) / blocks + 15) / 16 * 16;
  for (std::int64_t i = 0; i < sizes.rows; ++i) {
    for (std::int64_t j = 0; j < sizes.columns; ++j) {
      const std::int64_t at = i * to.stride + j;
      float value = to.start == nullptr ? 0.0F : to.start[at];
      if (to.bias != nullptr) value += to.bias[j];
      for (std::int64_t first = 0; first < sizes.depth; first += block) {
        float sum = 0;
        for (std::int64_t k = first; k < std::min(sizes.depth, first + block); ++k)
          sum = kFusedMultiplyAdd ? std::fma(*left.at(i, k), *right.at(k, j), sum)
                                  : *left.at(i, k) * *right.at(k, j) + sum;
        value += to.scale * sum;
      }
      out[static_cast<std::size_t>(at)] = value;
    }
  }
  return out;
}

// Both factors read either way, with gaps between their rows.
struct Factors {
  Floats left_values, right_values;
  Factor left, right;
  Factors(Sizes s, bool left_transposed, bool right_transposed) {
    constexpr std::int64_t kGap = 3;
    const std::int64_t left_stride = (left_transposed ? s.rows : s.depth) + kGap;
    const std::int64_t right_stride = (right_transposed ? s.depth : s.columns) + kGap;
    left_values = random_floats((left_transposed ? s.depth : s.rows) * left_stride, 1);
    right_values = random_floats((right_transposed ? s.columns : s.depth) * right_stride, 2);
    left = {left_values.data(), left_stride, left_transposed};
    right = {right_values.data(), right_stride, right_transposed};
  }
};

class Scratched {
 public:
  float* data() { return reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(floats_.data()) + 63) / 64 * 64); }

 private:
  Floats floats_ = Floats(static_cast<std::size_t>(kProductScratch + 16));
};

// Every remainder of a tile in both directions, more columns than are packed at a time, and one to three blocks.
const Sizes kSizes[] = {{1, 1, 1},    {5, 7, 3},     {12, 32, 16},  {13, 33, 17},  {11, 31, 100},
                        {25, 65, 64}, {300, 20, 40}, {20, 300, 40}, {14, 37, 769}, {17, 18, 1600}};

TEST(Product, IsItsDefinitionBitByBit) {
  ThreadPool pool(1);
  Scratched scratch;
  for (const Sizes s : kSizes) {
    for (int kind = 0; kind < 4; ++kind) {
      const Factors f(s, kind / 2 == 1, kind % 2 == 1);
      const std::int64_t stride = s.columns + 5;
      const Floats before = random_floats(s.rows * stride, 3), bias = random_floats(s.columns, 4);
      for (int form = 0; form < 4; ++form) {
        Floats out = before;
        const Destination to{.out = out.data(),
                             .stride = stride,
                             .start = form >= 2 ? out.data() : nullptr,
                             .bias = form % 2 == 1 ? bias.data() : nullptr,
                             .scale = form == 3 ? 0.3F : 1.0F};
        const Floats expected = by_definition(to, before, f.left, f.right, s);
        multiply(pool, 0, scratch.data(), to, f.left, f.right, s.rows, s.columns, s.depth);
        EXPECT_TRUE(same_bits(out, expected))
            << s.rows << " x " << s.columns << " x " << s.depth << ", kind " << kind << ", form " << form;
      }
    }
  }
}

// A product with a long depth looks at messages in between.
TEST(Product, CallsTheHookBetweenBlocksOfTheDepth) {
  ThreadPool pool(1);
  Scratched scratch;
  int calls = 0;
  pool.set_progress_hook([&] { ++calls; });
  const Sizes s = {1, 1, 2 * kDepthBlock};
  const Factors f(s, false, false);
  float out = 0;
  multiply(pool, 0, scratch.data(), {.out = &out, .stride = 1}, f.left, f.right, s.rows, s.columns, s.depth);
  EXPECT_EQ(calls, 1) << "the first call is not held back";
}

// Neither the rows beside a row nor their number decides anything, from one row on.
TEST(Product, BitsOfARowDoNotDependOnTheNumberOfRows) {
  const std::int64_t most = 70, C = 96, OC = 200;
  const Floats in = random_floats(most * OC, 1), weight = random_floats(OC * C, 2), bias = random_floats(OC, 3);
  CpuFixture cpu(2);
  Buffer x(*cpu, in), w(*cpu, weight), b(*cpu, bias);
  const auto rows_of = [&](std::int64_t rows) {
    Buffer out(*cpu, Floats(static_cast<std::size_t>(rows * OC))), pre(*cpu, out.values()),
        din(*cpu, Floats(static_cast<std::size_t>(rows * C)));
    (*cpu).matmul_gelu_forward(out, pre, x, w, b, rows, C, OC);
    Floats all = out.values();
    (*cpu).matmul_residual_forward(out, x, w, b, pre, rows, C, OC);
    const Floats residual = out.values();
    (*cpu).matmul_backward_input(din, x, w, rows, C, OC);
    const Floats gradient = din.values();
    return std::vector<Floats>{all, residual, gradient};
  };
  const std::vector<Floats> expected = rows_of(most);
  for (std::int64_t rows = 1; rows < most; ++rows) {
    const std::vector<Floats> some = rows_of(rows);
    for (std::size_t k = 0; k < some.size(); ++k) {
      const Floats first(expected[k].begin(), expected[k].begin() + static_cast<std::ptrdiff_t>(some[k].size()));
      EXPECT_TRUE(same_bits(some[k], first)) << rows << " rows, result " << k;
    }
  }
}

}  // namespace
}  // namespace train_gpt::cpu

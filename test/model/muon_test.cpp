// Muon beside its formula in double, written down with the transposition that the product leaves out.
#include "model/muon.h"

#include <algorithm>
#include <tuple>

#include "model/optimizer.h"
#include "test/kernels/device_fixture.h"

namespace train_gpt {
namespace {

using reference::Values;

// A matrix of doubles, row-major.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  Values values = Values(static_cast<std::size_t>(rows * columns));
  double& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  double at(std::int64_t i, std::int64_t j) const { return values[static_cast<std::size_t>(i * columns + j)]; }
};

Matrix transposed(const Matrix& x) {
  Matrix result{x.columns, x.rows};
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.columns; ++j) result.at(j, i) = x.at(i, j);
  return result;
}

Matrix product(const Matrix& x, const Matrix& y) {
  Matrix result{x.rows, y.columns};
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t k = 0; k < x.columns; ++k)
      for (std::int64_t j = 0; j < y.columns; ++j) result.at(i, j) += x.at(i, k) * y.at(k, j);
  return result;
}

Matrix orthogonalised(Matrix x) {
  const bool tall = x.rows > x.columns;
  if (tall) x = transposed(x);
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  for (double& value : x.values) value /= std::sqrt(squares) + 1e-7;
  for (int iteration = 0; iteration < 5; ++iteration) {
    const Matrix a = product(x, transposed(x));
    Matrix b = product(a, a);
    for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] = -4.7750 * a.values[i] + 2.0315 * b.values[i];
    const Matrix moved = product(b, x);
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = 3.4445 * x.values[i] + moved.values[i];
  }
  return tall ? transposed(x) : x;
}

// M and W after a step.
struct Stepped {
  Values average, parameter;
};
struct StepSizes {
  double learning_rate = 3e-3, weight_decay = 0.1, clip = 0.5, momentum = 0.95;
};

Stepped step_in_double(const Values& parameter, const Values& average, const Values& gradient, std::int64_t rows,
                       std::int64_t columns, double scale, const StepSizes& sizes = {}) {
  Stepped result{average, parameter};
  Matrix followed{rows, columns};
  const double b = sizes.momentum;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * sizes.clip;
    result.average[i] = b * average[i] + (1 - b) * g;
    followed.values[i] = (1 - b) * g + b * result.average[i];
  }
  const Matrix update = orthogonalised(followed);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    result.parameter[i] =
        (1 - sizes.learning_rate * sizes.weight_decay) * parameter[i] - sizes.learning_rate * scale * update.values[i];
  }
  return result;
}

const AdamWScalars kScalars{3e-3F, 1 - 0.729F, 1 - 0.857375F, 0.5F};

// Singular values, largest first: one-sided Jacobi rotations until rows are orthogonal.
Values singular_values(Matrix x) {
  if (x.rows > x.columns) x = transposed(x);
  const auto dot = [&](std::int64_t i, std::int64_t j) {
    double sum = 0;
    for (std::int64_t k = 0; k < x.columns; ++k) sum += x.at(i, k) * x.at(j, k);
    return sum;
  };
  for (double largest = 1; largest > 1e-9;) {
    largest = 0;
    for (std::int64_t i = 0; i < x.rows; ++i) {
      for (std::int64_t j = i + 1; j < x.rows; ++j) {
        const double ii = dot(i, i), jj = dot(j, j), ij = dot(i, j);
        largest = std::max(largest, std::abs(ij) / std::sqrt(ii * jj));
        const double angle = 0.5 * std::atan2(2 * ij, ii - jj), c = std::cos(angle), s = std::sin(angle);
        for (std::int64_t k = 0; k < x.columns; ++k) {
          const double a = x.at(i, k), b = x.at(j, k);
          x.at(i, k) = c * a + s * b;
          x.at(j, k) = c * b - s * a;
        }
      }
    }
  }
  Values values;
  for (std::int64_t i = 0; i < x.rows; ++i) values.push_back(std::sqrt(dot(i, i)));
  std::sort(values.rbegin(), values.rend());
  return values;
}

// X of a gradient alone: without average G' is (1 - b)(1 + b) G, and X does not depend on its size.
Matrix direction_of(Device& device, const Floats& gradient, std::int64_t rows, std::int64_t columns) {
  Buffer average(device, Floats(gradient.size())), from(device, gradient),
      scratch(device, Floats(static_cast<std::size_t>(muon_scratch_bytes(Precision::fp32, rows, columns) / 4)));
  const MuonMatrix matrix{.from = {.average = average, .gradient = from, .scalars = &kScalars, .momentum = 0.95F},
                          .rows = rows,
                          .columns = columns};
  const auto* direction = static_cast<const float*>(muon_direction(device, matrix, scratch));
  return {rows, columns, Values(direction, direction + rows * columns)};
}

using Shape = std::tuple<std::int64_t, std::int64_t>;
class MuonMatrixTest : public testing::TestWithParam<Shape> {};

TEST_P(MuonMatrixTest, AgreesWithItsFormulaAndHasTheBitsOfAnyThreads) {
  const auto [rows, columns] = GetParam();
  const std::int64_t n = rows * columns;
  const Floats parameter = random_floats(n, 1), average = random_floats(n, 2, 0.1F), gradient = random_floats(n, 3);
  for (const MuonScale kind : {MuonScale::rms, MuonScale::spectral}) {
    const auto step = [&, rows = rows, columns = columns](Device& device) {
      Buffer p(device, parameter), m(device, average), g(device, gradient), moved(device, parameter),
          scratch(device, Floats(static_cast<std::size_t>(muon_scratch_bytes(Precision::fp32, rows, columns) / 4)));
      MuonMatrix matrix{.new_values = moved,
                        .values = p,
                        .from = {.average = m, .gradient = g, .scalars = &kScalars, .momentum = 0.95F},
                        .rows = rows,
                        .columns = columns};
      const MuonConstants constants{.weight_decay = 0.1F, .scale = kind};
      muon_matrix_step(device, matrix, constants, scratch);
      EXPECT_TRUE(same_bits(p.values(), parameter) && same_bits(m.values(), average));
      matrix.new_values = p;  // in place
      muon_matrix_step(device, matrix, constants, scratch);
      EXPECT_TRUE(same_bits(p.values(), moved.values()));
      device.muon_average(m, matrix.from, n);
      Floats result = p.values();
      for (const float value : m.values()) result.push_back(value);
      return result;
    };
    const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
    const double scale = kind == MuonScale::rms ? 0.2 * std::sqrt(std::max(r, c)) : std::sqrt(std::max(1.0, r / c));
    const Stepped expected =
        step_in_double(doubles(parameter), doubles(average), doubles(gradient), rows, columns, scale);
    const Floats stepped = step(*CpuFixture(2));
    expect_close({stepped.begin(), stepped.begin() + n}, expected.parameter, 1e-5, "parameter");
    expect_close({stepped.begin() + n, stepped.end()}, expected.average, 1e-6, "average");
    expect_same_bits_for_any_threads("muon", 128, step);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MuonMatrixTest,
                         testing::Values(Shape{16, 64}, Shape{64, 16}, Shape{48, 48}, Shape{37, 19}, Shape{11, 53},
                                         Shape{1, 7}, Shape{1, 1}),
                         [](const auto& it) {
                           return std::to_string(std::get<0>(it.param)) + "x" + std::to_string(std::get<1>(it.param));
                         });

// Issue 18's bounds. Square Gaussian matrices have singular values near 0, which five iterations do not lift.
TEST(Muon, BringsSingularValuesNearOne) {
  const CpuFixture cpu(2);
  for (const auto& [rows, columns] : {Shape{48, 96}, Shape{96, 48}, Shape{32, 128}, Shape{129, 43}}) {
    const Values values = singular_values(direction_of(*cpu, random_floats(rows * columns, 5), rows, columns));
    EXPECT_LE(values.front(), 1.15) << rows << " x " << columns;
    EXPECT_GE(values.back(), 0.67) << rows << " x " << columns;
  }
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    const std::int64_t side = 96;
    const Values values = singular_values(direction_of(*cpu, random_floats(side * side, seed), side, side));
    EXPECT_LE(values.front(), 1.21) << seed;
    const auto small = std::count_if(values.begin(), values.end(), [](double value) { return value < 0.68; });
    EXPECT_LE(static_cast<double>(small), 0.03 * static_cast<double>(side)) << seed;
  }
}

TEST(Muon, AMatrixOfZerosStaysWhereItIsAndDecays) {
  const CpuFixture cpu(1);
  for (const double value : direction_of(*cpu, Floats(12), 3, 4).values) EXPECT_EQ(value, 0);
}

// q, k and v are three matrices; vectors and embeddings are AdamW's; second moments are a prefix of the arena.
TEST(Muon, TakesTheLayersMatricesAndNothingElse) {
  const ModelConfig config{.layers = 2, .heads = 2, .hidden = 16, .vocab = 100, .max_seq_len = 8};
  const std::vector<bool> all(static_cast<std::size_t>(unit_count(config)), true);
  const ArenaLayout layout = arena_layout(config, all, OptimizerKind::muon);
  const ArenaLayout plain = arena_layout(config, all);
  EXPECT_EQ(layout.elements, plain.elements);
  EXPECT_EQ(plain.second_elements, plain.elements);
  const auto n = static_cast<std::size_t>(layout.elements),
             with_second = static_cast<std::size_t>(layout.second_elements);
  EXPECT_EQ(n - with_second, 2 * 12 * 16 * 16U);
  CpuFixture cpu(1);
  Device& device = *cpu;
  const Floats values = random_floats(layout.elements, 1), m = random_floats(layout.elements, 2, 0.1F),
               gradients = random_floats(layout.elements, 3);
  Floats v = random_floats(layout.second_elements, 4);
  for (float& x : v) x *= x;
  Buffer p(device, values), first(device, m), second(device, v), g(device, gradients), kept(device, m),
      moved(device, values),
      scratch(device, Floats(static_cast<std::size_t>(muon_scratch_bytes(Precision::fp32, layout) / 4)));
  OptimizerArenas arenas{.new_values = moved, .m = kept, .v = second, .values = p, .gradients = g};
  const MuonConstants muon{.weight_decay = 0.1F};
  muon_step(device, arenas, layout, &kScalars, muon, /*keep_averages=*/true, scratch);
  EXPECT_TRUE(same_bits(kept.values(), m));
  muon_averages_step(device, arenas, layout, &kScalars, muon);
  arenas.new_values = p;
  arenas.m = first;
  muon_step(device, arenas, layout, &kScalars, muon, /*keep_averages=*/false, scratch);
  EXPECT_TRUE(same_bits(kept.values(), first.values()));
  EXPECT_TRUE(same_bits(moved.values(), p.values()));
  for (std::size_t i = 0; i < with_second; ++i) ASSERT_EQ(p.values()[i], values[i]) << "AdamW's element " << i;
  const AdamWConstants adamw{0.9F, 0.95F, 1e-8F, 0.1F};
  adamw_step(device, arenas, layout, &kScalars, adamw, /*keep_moments=*/false);
  const Floats stepped = p.values();
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const TensorKind kind = entry.info.kind;
    const bool qkv = kind == TensorKind::qkvw;
    const bool matrix = qkv || kind == TensorKind::attprojw || kind == TensorKind::fcw || kind == TensorKind::fcprojw;
    if (!matrix) {
      EXPECT_LE(entry.offset + entry.info.elements, layout.second_elements) << entry.info.name;
      EXPECT_NE(stepped[static_cast<std::size_t>(entry.offset)], values[static_cast<std::size_t>(entry.offset)]);
      continue;
    }
    const std::int64_t rows = kind == TensorKind::fcw ? 64 : 16, columns = kind == TensorKind::fcprojw ? 64 : 16;
    for (int i = 0; i < (qkv ? 3 : 1); ++i) {
      const auto part = [&](const Floats& arena) {
        const auto begin = arena.begin() + entry.offset + i * rows * columns;
        return Floats(begin, begin + rows * columns);
      };
      const Stepped expected = step_in_double(doubles(part(values)), doubles(part(m)), doubles(part(gradients)), rows,
                                              columns, 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns))));
      expect_close(part(stepped), expected.parameter, 1e-5, entry.info.name);
      expect_close(part(first.values()), expected.average, 1e-6, entry.info.name);
    }
  }
}

}  // namespace
}  // namespace train_gpt

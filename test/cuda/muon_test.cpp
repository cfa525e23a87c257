// Muon on the cuda device: its elementwise operations beside the cpu device, also where q, k and v begin at no multiple
// of 16 bytes, and a whole step.
#include "model/muon.h"

#include <tuple>

#include "test/cuda/cuda_fixture.h"

namespace train_gpt {
namespace {

constexpr float kMomentum = 0.95F;
constexpr AdamWScalars kScalars{3e-3F, 1, 1, 0.5F};

using Case = std::tuple<Precision, std::int64_t, std::int64_t>;  // elements, and where they begin in their arena
class CudaMuon : public testing::TestWithParam<Case> {};

TEST_P(CudaMuon, OperationsHaveTheValuesOfTheCpuDevice) {
  const auto [precision, n, begin] = GetParam();
  CudaFixture cuda(precision, 1, 1, 8, 1);
  CpuFixture cpu(1);
  const Floats parameter = random_floats(begin + n, 1), average = random_floats(begin + n, 2, 0.1F),
               gradient = random_floats(begin + n, 3), x = random_floats(n, 4), y = random_floats(n, 5);
  const auto operations = [&, n = n, begin = begin](Device& device) -> Results {
    const Scalars scalars(device, kScalars);
    const std::int64_t atoms = (n + kAtomElements - 1) / kAtomElements;
    Buffer p(device, parameter), m(device, average), g(device, gradient), sums(device, Floats(2 * atoms, NAN)),
        moved(device, parameter);
    LowBuffer direction(device, Floats(n, NAN)), first(device, x), second(device, y), low(device, parameter);
    const AveragedGradient from{m + begin, g + begin, scalars, kMomentum};
    auto* doubles_of = reinterpret_cast<double*>(static_cast<float*>(sums));
    device.muon_squared_sums(doubles_of, from, n);
    device.muon_direction(direction, from, doubles_of, n);
    device.muon_average(m + begin, from, n);
    device.weighted_sum(first, 3.4F, first, -4.7F, second, n);
    char* low_of = static_cast<char*>(static_cast<void*>(low)) + begin * element_size(device.precision());
    device.muon_update(moved + begin, low_of, p + begin, second, scalars, 0.1F, 2.0F, n);
    return {{"average", m.values()},
            {"moved", moved.values()},
            {"direction", direction.values()},
            {"weighted", first.values()},
            {"low", low.values()}};
  };
  const Results results = in_all_orders([&] { return operations(*cuda.device); });
  const Results expected = operations(*cpu);
  EXPECT_TRUE(same_bits(results[0].values, expected[0].values)) << "average";
  for (std::size_t i = 1; i < results.size(); ++i) {
    if (precision == Precision::fp32 && i != 2) {
      EXPECT_TRUE(same_bits(results[i].values, expected[i].values)) << results[i].name;
    } else {
      // The inputs of the cpu device are not rounded.
      expect_close(results[i].values, doubles(expected[i].values), precision == Precision::fp32 ? 1e-6 : 2e-2,
                   results[i].name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Small, CudaMuon,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(std::int64_t{1}, std::int64_t{1027}),
                                          testing::Values(std::int64_t{0}, std::int64_t{33 * 33})),
                         [](const auto& it) {
                           return name_of(std::get<0>(it.param)) + "_n" + std::to_string(std::get<1>(it.param)) +
                                  "_at" + std::to_string(std::get<2>(it.param));
                         });

TEST(CudaMuon, DirectionOfMoreThanOneAtom) {
  CudaFixture cuda(Precision::fp32, 1, 1, 8, 1);
  CpuFixture cpu(1);
  const std::int64_t n = 2 * kAtomElements + 77;
  const Floats average = random_floats(n, 2), gradient = random_floats(n, 3);
  const auto direction = [&](Device& device) -> Results {
    const Scalars scalars(device, kScalars);
    Buffer m(device, average), g(device, gradient), sums(device, Floats(6, NAN)), out(device, Floats(n, NAN));
    const AveragedGradient from{m, g, scalars, kMomentum};
    auto* doubles_of = reinterpret_cast<double*>(static_cast<float*>(sums));
    device.muon_squared_sums(doubles_of, from, n);
    device.muon_direction(out, from, doubles_of, n);
    return {{"direction", out.values()}};
  };
  const Results results = in_all_orders([&] { return direction(*cuda.device); });
  expect_close(results[0].values, doubles(direction(*cpu)[0].values), 1e-6, "direction");
}

// Five iterations of rounding to bf16 leave elements within a few of its steps.
TEST(CudaMuon, AStepIsThatOfTheCpuDevice) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{24, 96}, {96, 24}, {40, 40}, {33, 17}}) {
      CudaFixture cuda(precision, 1, 1, 8, 1);
      CpuFixture cpu(1);
      const std::int64_t n = rows * columns;
      const auto step = [&, rows = rows, columns = columns](Device& device) -> Results {
        const Scalars scalars(device, kScalars);
        Buffer p(device, random_floats(n, 1, 0.01F)), m(device, random_floats(n, 2, 0.1F)),
            g(device, random_floats(n, 3)),
            scratch(device,
                    Floats(static_cast<std::size_t>(muon_scratch_bytes(device.precision(), rows, columns) / 4)));
        const MuonMatrix matrix{.new_values = p,
                                .values = p,
                                .from = {.average = m, .gradient = g, .scalars = scalars, .momentum = kMomentum},
                                .rows = rows,
                                .columns = columns};
        muon_matrix_step(device, matrix, {.weight_decay = 0.1F}, scratch);
        return {{"parameter", p.values()}};
      };
      const Results results = in_all_orders([&] { return step(*cuda.device); });
      expect_close(results[0].values, doubles(step(*cpu)[0].values), precision == Precision::fp32 ? 1e-5 : 3e-2,
                   name_of(precision) + " " + std::to_string(rows) + " x " + std::to_string(columns));
    }
  }
}

}  // namespace
}  // namespace train_gpt

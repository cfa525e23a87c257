// Clocks that are known to differ.
#include "pipeline/measure/clock.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>

#include "kernels/local_communicator.h"

namespace train_gpt {
namespace {

TEST(Clock, OffsetsAreFoundToWithinTheErrorThatIsStated) {
  const std::array<double, 4> truth = {0, 1e6, -250, 3.5};
  run_local_ranks(4, [&](Communicator& world) {
    const double ahead = truth[static_cast<std::size_t>(world.rank())];
    const ClockOffset found = measure_clock_offset(world, [&] {
      return ahead +
             std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
    });
    EXPECT_LE(std::abs(found.ms - ahead), found.error_ms + 1e-6) << "rank " << world.rank();
    EXPECT_GE(found.error_ms, 0);
    EXPECT_TRUE(std::isfinite(found.error_ms));
    if (world.rank() == 0) {
      EXPECT_EQ(found.ms, 0);
    }
  });
}

// Rank 0 looks at its clock at 0 and 10, rank 1 at 103 and 109: it is ahead by 93 at least and by 109 at most.
TEST(Clock, OffsetAndErrorAreTheMiddleAndHalfOfWhatIsPossible) {
  run_local_ranks(2, [](Communicator& world) {
    const std::array<double, 2> times = world.rank() == 0 ? std::array{0.0, 10.0} : std::array{103.0, 109.0};
    std::size_t next = 0;
    const ClockOffset found = measure_clock_offset(
        world, [&] { return times.at(next++); }, /*rounds=*/1);
    EXPECT_EQ(found.ms, world.rank() == 0 ? 0 : 101);
    EXPECT_EQ(found.error_ms, 8) << "of all ranks";
  });
}

}  // namespace
}  // namespace train_gpt

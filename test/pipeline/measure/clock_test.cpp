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

}  // namespace
}  // namespace train_gpt

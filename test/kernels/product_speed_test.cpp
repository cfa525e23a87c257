#include "kernels/cpu/product_speed.h"

#include <gtest/gtest.h>

namespace train_gpt::cpu {
namespace {

// Both are measured, in the unit that they are said to have: no core does fewer than 10^8 or more than 10^12 operations
// per second. (How near the one comes to the other depends on what else runs.)
TEST(ProductSpeed, HasPlausibleNumbers) {
  const ProductSpeed speed = measure_product_speed();
  EXPECT_GT(speed.reached, 0.1);
  EXPECT_LT(speed.reached, 1000);
  EXPECT_GT(speed.peak, 0.1);
  EXPECT_LT(speed.peak, 1000);
}

}  // namespace
}  // namespace train_gpt::cpu

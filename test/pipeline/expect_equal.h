// Two runs that must be the same training, bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "test/pipeline/train/training_runs.h"

namespace train_gpt::test {

inline void expect_equal(const Outcome& actual, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(actual.losses, expected.losses) << what;
  EXPECT_EQ(actual.norms, expected.norms) << what;
  EXPECT_EQ(actual.validation, expected.validation) << what;
  EXPECT_EQ(actual.hash, expected.hash) << what;
  EXPECT_EQ(actual.hashes, expected.hashes) << what;
}

}  // namespace train_gpt::test

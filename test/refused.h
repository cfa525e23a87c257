// EXPECT_REFUSED(statement, part, ...): the statement throws std::invalid_argument with all parts in its message.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace train_gpt::test {

template <typename Run>
testing::AssertionResult refused(Run&& run, const std::vector<std::string>& parts) {
  try {
    run();
  } catch (const std::invalid_argument& error) {
    const std::string message = error.what();
    for (const std::string& part : parts) {
      if (message.find(part) == std::string::npos) {
        return testing::AssertionFailure() << "'" << part << "' is not in: " << message;
      }
    }
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "nothing was refused";
}

}  // namespace train_gpt::test

#define EXPECT_REFUSED(statement, ...) \
  EXPECT_TRUE(::train_gpt::test::refused([&] { (void)(statement); }, {__VA_ARGS__}))

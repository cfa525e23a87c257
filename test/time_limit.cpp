#include "test/time_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace train_gpt::test {
namespace {

char message[256];

void end_process(int) {
  (void)!write(STDERR_FILENO, message, std::strlen(message));
  _exit(1);
}

unsigned seconds_per_test() {
  const char* wanted = std::getenv("TEST_TIME_LIMIT");
  return wanted == nullptr ? 600 : static_cast<unsigned>(std::atoi(wanted));
}

class TimeLimit : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& info) override {
    limit_time_of((std::string(info.test_suite_name()) + "." + info.name()).c_str(), seconds_per_test());
  }
  void OnTestEnd(const testing::TestInfo&) override { lift_time_limit(); }
};

// Before main(), which is gtest_main's.
[[maybe_unused]] const bool installed = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new TimeLimit);  // owned by GoogleTest
  return true;
}();

}  // namespace

void limit_time_of(const char* name, unsigned seconds) {
  std::snprintf(message, sizeof message, "no end in sight: %s\n", name);
  std::signal(SIGALRM, end_process);
  alarm(seconds);
}

void lift_time_limit() { alarm(0); }

}  // namespace train_gpt::test

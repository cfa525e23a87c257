#include "test/time_limit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace train_gpt::test {
namespace {

TEST(TimeLimit, NamesTheTestThatHangs) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    limit_time_of("SomeSuite.SomeTest", 1);
    while (true) pause();
  }
  close(ends[1]);
  std::string said(100, '\0');
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(ends[0], said.data(), said.size()))));
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(said, "no end in sight: SomeSuite.SomeTest\n");
}

}  // namespace
}  // namespace train_gpt::test

// `train_gpt status` on ranks that live, ended, failed, are gone, or are elsewhere.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "commands/commands.h"
#include "pipeline/train/state_file.h"
#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

// The state that a process leaves which ends without a word.
void leave_state(const std::string& folder, int rank, int ranks) {
  const pid_t child = fork();
  if (child == 0) {
    StateFile state(folder, rank, ranks);
    state.set_step(3);
    state.set_doing("computing 0F1");
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(Status, TellsTheLivingFromTheDead) {
  const Folder folder;
  StateFile living(folder.path(), 0, 5);
  living.set_step(12);
  living.set_doing("waiting for the activation of micro-batch 3 from rank 1, to run 1F3");
  StateFile(folder.path(), 1, 5).finish();
  StateFile(folder.path(), 2, 5).fail("its disk is full");
  leave_state(folder.path(), 3, 5);
  leave_state(folder.path(), 4, 5);
  const std::string file = folder / "state.4";
  std::string bytes = read_file(file);
  bytes.replace(bytes.find(host_name()), 1, "?");
  write_file(file, bytes.data(), bytes.size());

  Options options;
  options.run.output = folder.path();
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_status(options), 0);
  std::istringstream table(testing::internal::GetCapturedStdout());
  std::vector<std::string> lines;
  for (std::string line; std::getline(table, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 6U);
  const auto says = [&](int rank, const std::vector<std::string>& parts) {
    const std::string& line = lines[static_cast<std::size_t>(rank) + 1];
    EXPECT_TRUE(line.starts_with(std::to_string(rank) + " of 5")) << line;
    for (const std::string& part : parts) EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  };
  says(0, {std::to_string(getpid()), "  12  ", "last sign of life 0.", "from rank 1, to run 1F3"});
  says(1, {"  finished  ", "finished"});
  says(2, {"  failed  ", "its disk is full"});
  says(3, {"  3  ", "  gone  ", "computing 0F1"});
  says(4, {"on another host"});
}

}  // namespace
}  // namespace train_gpt::test

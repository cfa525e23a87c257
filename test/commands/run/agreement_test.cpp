// Ranks that do not see the same are told so in the first second, once.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

namespace fs = std::filesystem;

class Agreement : public testing::Test {
 protected:
  Agreement() {
    const auto put = [&](const char* name, std::uint64_t seed, std::size_t size) {
      const std::vector<char> tokens = golden::token_file(size, seed);
      write_file(folder_ / name, tokens.data(), tokens.size());
    };
    put("train.bin", golden::kTrainSeed, 4000);
    put("other.bin", golden::kTrainSeed + 1, 4000);
  }
  std::string options(const std::string& more = "") const {
    return " --train-data " + (folder_ / "train.bin") +
           " --layers 1 --heads 1 --hidden 8 --vocab 1009 --max-seq-len 8 --seq-len 8 --threads 1 --steps 1 --output " +
           (folder_ / "out") + " " + more;
  }
  // One rank with each: what follows the program's name, and what precedes it.
  ProgramRun two(const std::string& first, const std::string& second, const std::string& wrapper = "") const {
    const std::string program = fs::read_symlink("/proc/self/exe").parent_path().string() + "/train_gpt";
    return run_program(1, first + " : -n 1 " + wrapper + " " + program + " " + second);
  }
  void expect_refused(const ProgramRun& run, const std::vector<std::string>& parts) const {
    EXPECT_EQ(run.status, 2) << run.output;
    EXPECT_EQ(count(run.output, "train_gpt: error:"), 1) << run.output;
    for (const std::string& part : parts)
      EXPECT_NE(run.output.find(part), std::string::npos) << part << "\n" << run.output;
  }
  Folder folder_;
};

TEST_F(Agreement, OtherOptions) {
  expect_refused(two(options("--seed 1"), options("--seed 2")),
                 {"the options", "rank 0 on host", "rank 1 on host", "--seed 2"});
  expect_refused(two(options(), options("--foo 3")), {"the options", "rank 1 on host", "--foo 3"});
  expect_refused(two(options("--foo 3"), options()), {"the options", "--foo 3"});
  expect_refused(two(options("--foo 3"), options("--foo 3")), {"--foo"});
  EXPECT_EQ(two(options(), options()).status, 0);
}

// Two hosts by mount namespaces, which root may make.
class TwoHosts : public Agreement {
 protected:
  void SetUp() override {
    if (std::system("unshare -m true 2>/dev/null") != 0) GTEST_SKIP() << "needs root, to give a rank a view of its own";
  }
  // Rank 1 sees `instead` in the place of `path`.
  ProgramRun with_view(const std::string& path, const std::string& instead) const {
    const std::string script = folder_ / "view.sh";
    const std::string text = "#!/bin/sh\nset -e\nmount --bind '" + instead + "' '" + path + "'\nexec \"$@\"\n";
    write_file(script, text.data(), text.size());
    return two(options(), options(), "unshare -m sh " + script);
  }
};

TEST_F(TwoHosts, OtherTokens) {
  expect_refused(with_view(folder_ / "train.bin", folder_ / "other.bin"),
                 {"ranks do not agree on the file", "train.bin", "rank 1 on host"});
}

TEST_F(TwoHosts, OtherBuild) {
  const std::string program = fs::read_symlink("/proc/self/exe").parent_path().string() + "/train_gpt";
  fs::copy_file(program, folder_ / "program");
  write_file(folder_ / "end", "x", 1);
  std::string bytes = read_file(folder_ / "program") + "x";
  write_file(folder_ / "program", bytes.data(), bytes.size());
  fs::permissions(folder_ / "program", fs::perms::owner_all);
  expect_refused(run_program(1, options() + " : -n 1 " + (folder_ / "program") + options()),
                 {"the program's build", "rank 1 on host"});
}

TEST_F(TwoHosts, OtherOutputDisk) {
  fs::create_directories(folder_ / "out");
  fs::create_directories(folder_ / "elsewhere");
  expect_refused(with_view(folder_ / "out", folder_ / "elsewhere"),
                 {"Rank 1 on host", "a folder that all hosts share"});
}

}  // namespace
}  // namespace train_gpt::test

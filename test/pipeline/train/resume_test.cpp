// A run that stops and goes on elsewhere is the run that never stopped, bit by bit.
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/local_communicator.h"
#include "model/file_checksum.h"
#include "model/optimizer.h"
#include "pipeline/train/file_agreement.h"
#include "test/model/temporary_folder.h"
#include "test/pipeline/train/training_runs.h"

namespace train_gpt::test {
namespace {

constexpr int kSteps = 10;
constexpr int kBreak = 5;

std::vector<double> behind_the_break(const std::vector<double>& all) { return {all.begin() + kBreak, all.end()}; }

// Runs `first` for kBreak steps and `second` for the others.
void expect_unbroken(Run first, Run second, const Outcome& unbroken, const std::string& what) {
  const TemporaryFolder folder;
  first.steps = second.steps = kSteps;
  first.stop_after = kBreak;
  first.save_to = folder.file(".");
  train(first);
  second.first_step = kBreak;
  second.resume_from = folder.file(".");
  const Outcome resumed = train(second);
  EXPECT_EQ(resumed.losses, behind_the_break(unbroken.losses)) << what;
  EXPECT_EQ(resumed.norms, behind_the_break(unbroken.norms)) << what;
  EXPECT_EQ(resumed.hash, unbroken.hash) << what;
}

TEST(Resume, OnOtherRanksSchedulesAndPlacementsGoesOnBitForBit) {
  const Outcome unbroken = train({.steps = kSteps});
  expect_unbroken({}, {}, unbroken, "p=1 to p=1");
  expect_unbroken({.schedule = "1f1b", .ranks = 4}, {.schedule = "zb-v", .ranks = 2}, unbroken, "1f1b to V");
  expect_unbroken({.schedule = "zb-v", .ranks = 2}, {.schedule = "interleaved", .ranks = 4}, unbroken, "V to chunks");
  expect_unbroken({.schedule = "zb-h1", .ranks = 3}, {.schedule = "1f1b", .ranks = 3, .partition = {1, 6, 1}}, unbroken,
                  "another partition");
}

TEST(Resume, BetweenReplicasDirectionsAndGroups) {
  const Outcome unbroken = train({.micro_batches = 8, .groups = 2, .steps = kSteps});
  const test::Run dualpipe{.schedule = "dualpipe", .ranks = 2, .micro_batches = 8, .groups = 2};
  const test::Run replicas{.schedule = "1f1b", .ranks = 2, .replicas = 2, .micro_batches = 4};
  const test::Run groups{.schedule = "zb-h1", .ranks = 3, .micro_batches = 8, .groups = 2};
  expect_unbroken(dualpipe, replicas, unbroken, "dualpipe to d=2");
  expect_unbroken(replicas, dualpipe, unbroken, "d=2 to dualpipe");
  expect_unbroken(groups, dualpipe, unbroken, "groups to dualpipe");
}

TEST(Resume, UntiedModels) {
  const Outcome unbroken = train({.tied = false, .steps = kSteps});
  expect_unbroken({.schedule = "1f1b", .ranks = 4, .tied = false}, {.schedule = "zb-v", .ranks = 2, .tied = false},
                  unbroken, "untied");
}

TEST(Resume, WithoutTheMomentsItWouldNotBeTheSame) {
  const Outcome unbroken = train({.steps = kSteps});
  const TemporaryFolder folder;
  train({.steps = kSteps, .stop_after = kBreak, .save_to = folder.file(".")});
  std::vector<char> moments = read_bytes(folder.file("optimizer.bin"));
  std::fill(moments.begin() + 1024, moments.end(), 0);
  folder.write("optimizer.bin", moments);
  const Outcome resumed = train({.steps = kSteps, .first_step = kBreak, .resume_from = folder.file(".")});
  EXPECT_EQ(resumed.losses.front(), unbroken.losses[kBreak]);
  EXPECT_NE(resumed.hash, unbroken.hash);
}

TEST(FileChecksum, IsTheSameForAnyNumberOfReadersAndSeesEveryByte) {
  const TemporaryFolder folder;
  std::vector<char> bytes((std::size_t{5} << 20) + 13);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 9);
  const auto checksum = [&](int ranks, std::int64_t expected_bytes) {
    std::string result;
    run_local_ranks(ranks, [&](Communicator& world) {
      const std::string mine = file_checksum(world, folder.file("file"), expected_bytes);
      if (world.rank() == 0) result = mine;
    });
    return result;
  };
  folder.write("file", bytes);
  const auto size = static_cast<std::int64_t>(bytes.size());
  const std::string one = checksum(1, size);
  EXPECT_EQ(one.size(), 16U);
  EXPECT_EQ(one, combined_hash(block_hashes(folder.file("file"), 0, 1)));
  for (const int ranks : {2, 3, 8}) EXPECT_EQ(checksum(ranks, size), one);
  for (const std::int64_t other : {size - 1, size + 1}) EXPECT_EQ(checksum(2, other), "") << "another size";
  for (const std::size_t at : {std::size_t{0}, std::size_t{3} << 20, bytes.size() - 1}) {
    std::vector<char> changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    folder.write("file", changed);
    EXPECT_NE(checksum(2, size), one) << at;
  }
  std::filesystem::remove(folder.file("file"));
  EXPECT_EQ(checksum(2, size), "") << "no file";
}

}  // namespace
}  // namespace train_gpt::test

#include "data/token_dataset.h"

#include <filesystem>

#include "data/glob.h"
#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using test::counting;
using test::TemporaryFolder;
using test::write_tokens;

constexpr std::int64_t kVocab = 50257;

std::vector<std::int32_t> inputs(const TokenDataset& data, std::int64_t window) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(data.seq_len()));
  data.read_inputs(out.data(), window);
  return out;
}

std::vector<std::int32_t> targets(const TokenDataset& data, std::int64_t window) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(data.seq_len()));
  data.read_targets(out.data(), window);
  return out;
}

TEST(TokenDataset, CutsWindowsWithTargetsShiftedByOne) {
  const TemporaryFolder folder;
  write_tokens(folder / "a.bin", counting(13));
  const TokenDataset data(folder / "a.bin", "--train-data", 4, kVocab);
  EXPECT_EQ(data.window_count(), 3);
  EXPECT_EQ(data.token_count(), 13);
  EXPECT_EQ(inputs(data, 0), (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(targets(data, 0), (std::vector<std::int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(inputs(data, 2), (std::vector<std::int32_t>{8, 9, 10, 11}));
  EXPECT_EQ(targets(data, 2), (std::vector<std::int32_t>{9, 10, 11, 12}));
}

TEST(TokenDataset, DropsAWindowWithoutItsLastTarget) {
  const TemporaryFolder folder;
  write_tokens(folder / "a.bin", counting(12));
  EXPECT_EQ(TokenDataset(folder / "a.bin", "--train-data", 4, kVocab).window_count(), 2);
}

TEST(TokenDataset, NumbersWindowsThroughAllShardsAndCrossesNoBorder) {
  const TemporaryFolder folder;
  write_tokens(folder / "shard_2.bin", counting(9, 200));
  write_tokens(folder / "shard_0.bin", counting(11, 0));
  write_tokens(folder / "shard_1.bin", counting(4, 100));  // too short for a window
  const TokenDataset data(folder / "shard_*.bin", "--train-data", 4, kVocab);
  EXPECT_EQ(data.shards().size(), 3U);
  EXPECT_EQ(data.window_count(), 4);
  EXPECT_EQ(inputs(data, 1), (std::vector<std::int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(inputs(data, 2), (std::vector<std::int32_t>{200, 201, 202, 203}));
  EXPECT_EQ(targets(data, 3), (std::vector<std::int32_t>{205, 206, 207, 208}));
  EXPECT_THROW(inputs(data, 4), std::out_of_range);
}

TEST(TokenDataset, MixesWidths) {
  const TemporaryFolder folder;
  write_tokens(folder / "a.bin", counting(5));
  test::write_wide_tokens(folder / "b.bin", {70000, 70001, 70002, 70003, 70004});
  const TokenDataset data(folder / "*.bin", "--train-data", 4, 100000);
  EXPECT_EQ(inputs(data, 0), (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(targets(data, 1), (std::vector<std::int32_t>{70001, 70002, 70003, 70004}));
}

TEST(TokenDataset, RefusesIdsBeyondTheVocabularyAlsoOnlyAsTarget) {
  const TemporaryFolder folder;
  write_tokens(folder / "a.bin", {1, 2, 3, 4, 600});  // position 4 is a target only
  EXPECT_REFUSED(TokenDataset(folder / "a.bin", "--train-data", 4, 512), folder / "a.bin", "id 600 at position 4",
                 "512");
}

TEST(TokenDataset, SaysWhenThereAreTooFewTokens) {
  const TemporaryFolder folder;
  write_tokens(folder / "a.bin", counting(256));
  EXPECT_REFUSED(TokenDataset(folder / "a.bin", "--val-data", 256, kVocab), "--val-data", folder / "a.bin",
                 "256 tokens", "--seq-len 256", "257");

  const TokenDataset data(folder / "a.bin", "--train-data", 32, kVocab);  // 7 windows
  data.require_rows(7);
  EXPECT_REFUSED(data.require_rows(8), "--train-data", "256 tokens", "7 windows", "8 rows");
  data.require_batches(3, 2);
  EXPECT_REFUSED(data.require_batches(4, 2), "enough for 3 batches of 2 rows", "4 are asked for",
                 "at most --val-batches 3");
  EXPECT_REFUSED(data.require_batches(1, 8), "enough for 0 batches", "use more tokens");
}

TEST(Glob, ExpandsSortsAndNamesWhatItDoesNotFind) {
  const TemporaryFolder folder;
  for (const char* name : {"b.txt", "a.txt", "c.md", "odd[1].txt"}) test::write_bytes(folder / name, "x");
  std::filesystem::create_directory(folder / "sub.txt");
  EXPECT_EQ(expand_glob(folder / "?.txt", "--text"), (std::vector<std::string>{folder / "a.txt", folder / "b.txt"}));
  EXPECT_EQ(expand_glob(folder / "{c.md,b.*,*.md}", "--text"),
            (std::vector<std::string>{folder / "b.txt", folder / "c.md"}));
  EXPECT_EQ(expand_glob(folder / "odd[1].txt", "--text"), std::vector<std::string>{folder / "odd[1].txt"});
  EXPECT_REFUSED(expand_glob(folder / "*.bin", "--train-data"), "--train-data", "no file matches", folder / "*.bin");
  EXPECT_REFUSED(expand_glob(folder / "sub.txt", "--text"), "--text", "directory", "sub.txt/*");
  EXPECT_REFUSED(expand_glob("", "--train-data"), "--train-data", "no file matches ''");
}

}  // namespace
}  // namespace train_gpt

#include "commands/commands.h"

#include "data/manifest.h"
#include "data/prepare.h"
#include "data/token_dataset.h"
#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using test::TemporaryFolder;
using test::write_bytes;

Options prepare_options(const std::string& text, const std::string& output, const std::string& tokenizer = "bytes") {
  return parse_options({"prepare", "--text", text, "--output", output, "--tokenizer", tokenizer});
}

TEST(PrepareCommand, MakesATokenFileThatADatasetReads) {
  const TemporaryFolder folder;
  write_bytes(folder / "b.txt", "second");
  write_bytes(folder / "a.txt", "first\r\n");
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_prepare(prepare_options(folder / "*.txt", folder / "tokens.bin")), 0);
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("15 tokens of 2 documents; vocabulary 257"), std::string::npos) << said;

  EXPECT_EQ(vocab_of(folder / "tokens.bin", "--train-data"), 257);
  const TokenDataset data(folder / "tokens.bin", "--train-data", 14, 257);
  std::vector<std::int32_t> ids(14);
  data.read_targets(ids.data(), 0);
  const Tokenizer bytes(byte_vocabulary());
  TextDecoder decoder(bytes, "|");
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  EXPECT_EQ(text, "first\r\n|second");
}

TEST(PrepareCommand, CountsEmptyFiles) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.txt", "a");
  write_bytes(folder / "b.txt", "");
  testing::internal::CaptureStdout();
  run_prepare(prepare_options(folder / "?.txt", folder / "tokens.bin"));
  EXPECT_NE(testing::internal::GetCapturedStdout().find("1 empty file left out"), std::string::npos);
}

TEST(PrepareCommand, RefusesWhatItCannotDo) {
  const TemporaryFolder folder;
  write_bytes(folder / "empty.txt", "");
  EXPECT_REFUSED(run_prepare(prepare_options(folder / "*.md", folder / "tokens.bin")), "--text", "no file matches");
  EXPECT_REFUSED(run_prepare(prepare_options(folder / "empty.txt", folder / "tokens.bin")), "0 tokens");
  EXPECT_REFUSED(run_prepare(prepare_options(folder / "empty.txt", folder / "tokens.bin", "gpt2/")), "--tokenizer",
                 "gpt2/", "no file or folder", "give bytes");
  EXPECT_REFUSED(run_prepare(prepare_options(folder / "empty.txt", "/proc/none/tokens.bin")), "/proc/none");
}

TEST(PrepareCommand, AFolderGetsBothPartsAndALearnedTokenizer) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox number " + std::to_string(i) + "\n";
  write_bytes(folder / "a.txt", text);
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"prepare", "--text", folder / "a.txt", "--output", folder / "mine"};
    words.insert(words.end(), more.begin(), more.end());
    testing::internal::CaptureStdout();
    EXPECT_EQ(run_prepare(parse_options(words)), 0);
    return testing::internal::GetCapturedStdout();
  };
  const std::string said = run({"--vocab", "300"});
  EXPECT_NE(said.find("vocabulary 300"), std::string::npos);
  EXPECT_EQ(said.find("note:"), std::string::npos) << said;
  const Options train = parse_options({"train", "--data", folder / "mine"});
  EXPECT_EQ(train.data.train_data, folder / "mine/train.bin");
  EXPECT_EQ(train.data.val_data, folder / "mine/val.bin");
  EXPECT_EQ(vocab_of(train.data.train_data, "--train-data"), 300);

  const Tokenizer tokenizer(read_vocabulary(folder / "mine"));
  TextDecoder decoder(tokenizer);
  std::string read;
  for (const std::string& path : {train.data.train_data, train.data.val_data}) {
    const TokenFile file(path);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.token_count()));
    file.read(ids.data(), 0, file.token_count(), 300);
    for (const std::int32_t id : ids) read += decoder.push(id);
  }
  EXPECT_EQ(read, text);

  // The tokenizer that was learned serves other texts; shards are found as well.
  run({"--tokenizer", folder / "mine/tokenizer.json", "--shard-tokens", "100", "--val-fraction", "0"});
  EXPECT_REFUSED(parse_options({"train", "--data", folder / "mine"}), "--data", "two preparations");
  std::filesystem::remove(folder / "mine/train.bin");
  EXPECT_EQ(parse_options({"train", "--data", folder / "mine"}).data.train_data, folder / "mine/train-*.bin");
  EXPECT_REFUSED(parse_options({"train", "--data", folder / "none"}), "--data", folder / "none", "prepare");
}

// A line of the text may have characters that other tokenizers know better.
TEST(PrepareCommand, ListsCharactersThatAreNewerThanItsTables) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.txt", "some words \u0378\u0379 and more words \u05cd\u0378\n");
  for (const std::string output : {"mine", "bytes.bin"}) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(run_prepare(parse_options({"prepare", "--text", folder / "a.txt", "--output", folder / output})), 0);
    const std::string said = testing::internal::GetCapturedStdout();
    const bool listed = said.find(
                            "note: 3 characters of the text (U+0378..U+0379, U+05CD) are newer than the Unicode "
                            "tables of this machine's PCRE2 (") != std::string::npos;
    EXPECT_EQ(listed, output == "mine") << said;
    if (!listed) continue;
    EXPECT_NE(said.find(folder / "mine/val.bin.json lists them all"), std::string::npos) << said;
    for (const char* file : {"mine/train.bin.json", "mine/val.bin.json"}) {
      const std::string manifest = test::read_bytes(folder / file);
      EXPECT_NE(manifest.find("\"unknown_characters\": \"U+0378..U+0379, U+05CD\""), std::string::npos) << manifest;
    }
  }
}

}  // namespace
}  // namespace train_gpt

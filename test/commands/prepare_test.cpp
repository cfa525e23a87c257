#include "commands/commands.h"

#include "data/byte_tokenizer.h"
#include "data/manifest.h"
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
  ByteDecoder decoder("|");
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
  EXPECT_NE(testing::internal::GetCapturedStdout().find("1 empty files left out"), std::string::npos);
}

TEST(PrepareCommand, RefusesWhatItCannotDo) {
  const TemporaryFolder folder;
  write_bytes(folder / "empty.txt", "");
  EXPECT_REFUSED(run_prepare(prepare_options(folder / "*.md", folder / "tokens.bin")), "--text", "no file matches");
  EXPECT_REFUSED(run_prepare(prepare_options(folder / "empty.txt", folder / "tokens.bin")), "0 tokens");
  EXPECT_REFUSED(run_prepare(prepare_options(folder / "empty.txt", folder / "tokens.bin", "gpt2/")), "--tokenizer",
                 "gpt2/", "byte-pair", "give bytes");
  EXPECT_REFUSED(run_prepare(prepare_options(folder / "empty.txt", "/proc/none/tokens.bin")), "/proc/none");
}

}  // namespace
}  // namespace train_gpt

#include "data/prepare.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "data/glob.h"
#include "data/manifest.h"
#include "data/token_file.h"
#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

// Every byte, CRLF, emoji, a lone continuation byte, a truncated character, and the end-of-text marker as text.
std::string odd_text() {
  std::string text = "caf\xC3\xA9 \xF0\x9F\x9A\x80\r\n<|endoftext|>\x80 tail \xE2\x82";
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  return text;
}

std::vector<std::int32_t> all_tokens(const std::string& path) {
  const TokenFile file(path);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.token_count()));
  file.read(ids.data(), 0, file.token_count(), kByteVocab);
  return ids;
}

const Tokenizer& bytes() {
  static const Tokenizer tokenizer(byte_vocabulary());
  return tokenizer;
}

std::string decoded(const std::vector<std::int32_t>& ids, const std::string& end_of_text = "") {
  TextDecoder decoder(bytes(), end_of_text);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

// A single file of bytes, as `prepare --output FILE.bin` makes it.
PrepareSummary prepare_bytes(const std::vector<std::string>& text_files, const std::string& output,
                             const std::function<void(std::int64_t, std::int64_t)>& progress = {}) {
  PrepareRequest request;
  request.text_files = text_files;
  request.train_file = output;
  request.tokenizer_file = "bytes";
  request.documents.split_at_end_of_text = false;
  return prepare(request, Tokenizer(byte_vocabulary()), {progress, {}});
}

TEST(Prepare, RoundTripIsByteExact) {
  const TemporaryFolder folder;
  const std::vector<std::string> texts = {odd_text(), "no newline at the end", "", std::string(200000, 'x') + "\n"};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    names.push_back(folder / ("text" + std::to_string(i)));
    write_bytes(names.back(), texts[i]);
  }
  const PrepareSummary summary = prepare_bytes(names, folder / "tokens.bin");
  EXPECT_EQ(summary.documents, 3);
  EXPECT_EQ(summary.empty, 1);

  const std::vector<std::int32_t> ids = all_tokens(folder / "tokens.bin");
  EXPECT_EQ(summary.train_tokens, static_cast<std::int64_t>(ids.size()));
  EXPECT_EQ(decoded(ids, "[EOT]"), "[EOT]" + texts[0] + "[EOT]" + texts[1] + "[EOT]" + texts[3]);

  const std::optional<Manifest> manifest = read_manifest(folder / "tokens.bin");
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->vocab, 257);
  EXPECT_EQ(manifest->end_of_text, 256);
  EXPECT_EQ(manifest->tokenizer, "bytes");
  ASSERT_EQ(manifest->documents.size(), 3U);
  const Manifest::Document& last = manifest->documents[2];
  EXPECT_EQ(last.file, names[3]);
  const auto begin = ids.begin() + last.first_token;
  EXPECT_EQ(decoded({begin, begin + last.tokens}), texts[3]);
  EXPECT_EQ(*(begin - 1), bytes().end_of_text());
}

TEST(Prepare, LeavesNothingButTheFinishedFiles) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.txt", "text");
  prepare_bytes({folder / "a.txt"}, folder / "new/folder/tokens.bin");
  EXPECT_EQ(expand_glob(folder / "new/folder/*", "test"),
            (std::vector<std::string>{folder / "new/folder/tokens.bin", folder / "new/folder/tokens.bin.json"}));
}

TEST(Prepare, RefusesEmptyTextAndKeepsTheOlderFile) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.txt", "text");
  write_bytes(folder / "empty.txt", "");
  prepare_bytes({folder / "a.txt"}, folder / "tokens.bin");
  const std::string before = read_bytes(folder / "tokens.bin");
  EXPECT_REFUSED(prepare_bytes({folder / "empty.txt"}, folder / "tokens.bin"), "no text", "0 tokens");
  EXPECT_REFUSED(prepare_bytes({folder / "a.txt", folder / "gone.txt"}, folder / "tokens.bin"), folder / "gone.txt",
                 "No such file");
  EXPECT_EQ(read_bytes(folder / "tokens.bin"), before);
  EXPECT_EQ(expand_glob(folder / "*", "test").size(), 4U) << "a.txt, empty.txt, tokens.bin and its manifest";
}

TEST(Prepare, RefusesOutputsThatItCannotWriteOrThatAreTexts) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.txt", "text");
  EXPECT_REFUSED(prepare_bytes({folder / "a.txt"}, folder / "a.txt"), "--output", folder / "a.txt", "one of the texts");
  EXPECT_REFUSED(prepare_bytes({folder / "a.txt"}, folder.path().string()), "is a directory");
  EXPECT_REFUSED(prepare_bytes({folder / "a.txt"}, folder / "a.txt/tokens.bin"), "a.txt");
  EXPECT_EQ(read_bytes(folder / "a.txt"), "text");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_REFUSED(prepare_bytes({folder / "a.txt"}, folder / "pipe"), folder / "pipe", "not a regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  write_bytes(folder / "b.json", "{}");
  EXPECT_REFUSED(prepare_bytes({folder / "b.json"}, folder / "b"), "one of the texts");
}

TEST(Prepare, CountsTokensBeforeItReadsTerabytes) {
  const TemporaryFolder folder;
  write_bytes(folder / "huge.txt", "");
  ASSERT_EQ(truncate((folder / "huge.txt").c_str(), std::int64_t{3} << 30), 0);  // sparse
  EXPECT_REFUSED(prepare_bytes({folder / "huge.txt"}, folder / "tokens.bin"), "2147483647", "several files");
}

TEST(Prepare, TellsProgress) {
  const TemporaryFolder folder;
  constexpr std::int64_t kBytes = std::int64_t{40} << 20;
  write_bytes(folder / "large.txt", std::string(kBytes, 'a'));
  std::vector<std::int64_t> told;
  prepare_bytes({folder / "large.txt"}, folder / "tokens.bin", [&](std::int64_t done, std::int64_t all) {
    EXPECT_EQ(all, kBytes);
    told.push_back(done);
  });
  EXPECT_EQ(told, (std::vector<std::int64_t>{std::int64_t{16} << 20, std::int64_t{32} << 20}));
}

// Bytes of mapped files that this process holds in memory.
std::int64_t mapped_in_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssFile:")) return std::stoll(line.substr(8)) * 1024;
  }
  ADD_FAILURE() << "the system does not say";
  return 0;
}

// No more than a batch of the text that was read so far stays in memory.
TEST(Prepare, TextThatWasReadLeavesMemory) {
  const TemporaryFolder folder;
  constexpr std::int64_t kMega = std::int64_t{1} << 20;
  std::string rows;
  while (rows.size() < 40 * kMega) rows += "{\"text\": \"" + std::string(4000, 'x') + "\"}\n";
  write_bytes(folder / "rows.jsonl", rows);
  std::string documents;
  while (documents.size() < 40 * kMega) documents += std::string(300000, 'x') + "<|endoftext|>";
  write_bytes(folder / "documents.txt", documents);
  for (const char* name : {"rows.jsonl", "documents.txt"}) {
    PrepareRequest request;
    request.text_files = {folder / name};
    request.train_file = folder / "train.bin";
    request.tokenizer_file = "tokenizer.json";
    const std::int64_t before = mapped_in_memory();
    std::int64_t most = 0;
    prepare(request, Tokenizer(byte_vocabulary()),
            {[&](std::int64_t, std::int64_t) { most = std::max(most, mapped_in_memory() - before); }, {}});
    EXPECT_GT(most, 0) << name;
    EXPECT_LT(most, 10 * kMega) << name << ": a batch is one, the system's pages may be two each";
  }
}

TEST(TextDecoder, HoldsBackIncompleteCharactersOnly) {
  TextDecoder decoder(bytes(), "<|endoftext|>");
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x9A), "");
  EXPECT_EQ(decoder.push(0x80), "\xF0\x9F\x9A\x80");
  EXPECT_EQ(decoder.push(0x80), "\x80") << "a lone continuation byte";
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push('b'),
            "\xE2"
            "b")
      << "a character that breaks off";
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.push(0xC3), "\xC3") << "the second one may become a character";
  EXPECT_EQ(decoder.push(bytes().end_of_text()), "\xC3<|endoftext|>");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.finish(), "\xE2");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_REFUSED(decoder.push(257), "257", "0 to 256");
  EXPECT_REFUSED(decoder.push(-1), "-1");
}

TEST(ByteTokenizer, EncodesBytes) {
  EXPECT_EQ(bytes().encode("a\xFF"), (std::vector<std::int32_t>{97, 255}));
  EXPECT_EQ(decoded(bytes().encode(odd_text())), odd_text());
  EXPECT_TRUE(is_byte_level(257));
  EXPECT_FALSE(is_byte_level(50257));
}

TEST(Manifest, IsOptional) {
  const TemporaryFolder folder;
  test::write_tokens(folder / "a.bin", test::counting(10));
  EXPECT_FALSE(read_manifest(folder / "a.bin"));
  EXPECT_FALSE(vocab_of(folder / "*.bin", "--train-data"));
}

TEST(Manifest, TellsTheVocabulary) {
  const TemporaryFolder folder;
  write_bytes(folder / "text", "text");
  prepare_bytes({folder / "text"}, folder / "a.bin");
  prepare_bytes({folder / "text"}, folder / "b.bin");
  EXPECT_EQ(vocab_of(folder / "*.bin", "--train-data"), 257);

  Manifest other = *read_manifest(folder / "b.bin");
  other.vocab = 50257;
  write_bytes(folder / "b.bin.json", manifest_text(other));
  EXPECT_REFUSED(vocab_of(folder / "*.bin", "--train-data"), "--train-data", folder / "a.bin", folder / "b.bin", "257",
                 "50257", "disagree");
}

TEST(Manifest, IsRefusedWhenCorrupt) {
  const TemporaryFolder folder;
  write_bytes(folder / "text", "text");
  prepare_bytes({folder / "text"}, folder / "a.bin");
  const std::string path = folder / "a.bin.json";
  const std::string good = read_bytes(path);
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write_bytes(path, text);
  };
  write_bytes(path, good.substr(0, good.size() / 2));
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "cannot be read", "--vocab");
  write_bytes(path, "");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path);
  write_bytes(path, "[1]");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "no JSON object");
  broken("train_gpt token manifest", "another");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "is not a");
  broken("\"version\": 1", "\"version\": 2");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "version 2");
  broken("\"vocabulary\": 257", "\"vocabulary\": \"many\"");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "\"vocabulary\"", "many");
  broken("\"vocabulary\": 257", "\"vocabulary\": 0");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "vocabulary 0");
  broken("\"vocabulary\": 257", "\"vocabulary\": 2147483648");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "vocabulary 2147483648");
  broken("\"tokens\": 5", "\"tokens\": 6");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "6 tokens", "holds 5");
  broken("\"tokens\": 5", "\"tokens\": 4");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "4 tokens", "holds 5");
  broken("\"documents\"", "\"papers\"");
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), path, "documents");
}

}  // namespace
}  // namespace train_gpt

#include "data/token_file.h"

#include <sys/stat.h>

#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using test::body;
using test::header;
using test::TemporaryFolder;
using test::write_bytes;

TEST(TokenFile, ReadsBothWidths) {
  const TemporaryFolder folder;
  test::write_tokens(folder / "narrow.bin", {7, 65535, 0, 9});
  test::write_wide_tokens(folder / "wide.bin", {7, 100000, 0, 9});
  std::int32_t ids[3];

  const TokenFile narrow(folder / "narrow.bin");
  EXPECT_EQ(narrow.token_count(), 4);
  EXPECT_EQ(narrow.bytes_per_token(), 2);
  narrow.read(ids, 1, 3, 65536);
  EXPECT_EQ(ids[0], 65535);
  EXPECT_EQ(ids[2], 9);

  const TokenFile wide(folder / "wide.bin");
  EXPECT_EQ(wide.bytes_per_token(), 4);
  wide.read(ids, 1, 3, 100001);
  EXPECT_EQ(ids[0], 100000);
  EXPECT_EQ(ids[2], 9);
}

TEST(TokenFile, RefusesWhatIsNoTokenFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "tokens.bin";
  const std::string ids = body(test::counting(10));

  EXPECT_REFUSED(TokenFile(path), path, "No such file");
  EXPECT_REFUSED(TokenFile(folder.path().string()), "not a regular file");
  write_bytes(path, "");
  EXPECT_REFUSED(TokenFile(path), path, "is empty");
  write_bytes(path, header(20240520, 1, 10).substr(0, 1023));
  EXPECT_REFUSED(TokenFile(path), path, "has 1023 bytes", "header of 1024 bytes");
  write_bytes(path, header(12345, 1, 10) + ids);
  EXPECT_REFUSED(TokenFile(path), path, "starts with 12345", "20240520", "20240801", "prepare");
  write_bytes(path, header(20240326, 3, 10) + ids);
  EXPECT_REFUSED(TokenFile(path), path, "is a model file", "--init");
  for (const std::int32_t magic : {20240520, 20240801}) {
    const auto swapped = static_cast<std::int32_t>(__builtin_bswap32(static_cast<std::uint32_t>(magic)));
    write_bytes(path, header(swapped, 1 << 24, 10 << 24) + ids);
    EXPECT_REFUSED(TokenFile(path), path, "byte-swapped", "little-endian");
  }
  write_bytes(path, header(20240520, 2, 10) + ids);
  EXPECT_REFUSED(TokenFile(path), path, "version 2", "version 1 only");
  write_bytes(path, header(20240801, 1, 5) + ids);
  EXPECT_REFUSED(TokenFile(path), path, "version 1", "version 7 only");
}

TEST(TokenFile, RefusesWrongSizes) {
  const TemporaryFolder folder;
  const std::string path = folder / "tokens.bin";
  const std::string ids = body(test::counting(10));

  write_bytes(path, header(20240520, 1, 0));
  EXPECT_REFUSED(TokenFile(path), path, "no tokens", "counts 0");
  write_bytes(path, header(20240520, 1, -5) + ids);
  EXPECT_REFUSED(TokenFile(path), path, "no tokens", "counts -5");
  write_bytes(path, header(20240520, 1, 11) + ids);
  EXPECT_REFUSED(TokenFile(path), path, "has 1044 bytes", "counts 11 tokens", "take 1046 bytes", "truncated");
  write_bytes(path, header(20240520, 1, 10) + ids + "x");
  EXPECT_REFUSED(TokenFile(path), path, "has 1045 bytes", "take 1044 bytes", "appended");
  // 2^31 - 1 tokens of 4 bytes: the product leaves 32 bits.
  write_bytes(path, header(20240801, 7, 2147483647) + ids);
  EXPECT_REFUSED(TokenFile(path), path, "take 8589935612 bytes");
}

TEST(TokenFile, NamesTheIdBeyondTheVocabulary) {
  const TemporaryFolder folder;
  const std::string path = folder / "tokens.bin";
  std::vector<std::uint16_t> ids(50000, 3);
  ids[40001] = 300;
  ids[40007] = 500;
  test::write_tokens(path, ids);
  const TokenFile file(path);
  file.check_ids(501);
  EXPECT_REFUSED(file.check_ids(257), path, "id 300 at position 40001", "257 ids, 0 to 256", "--vocab 301");
  std::vector<std::int32_t> out(64);
  EXPECT_REFUSED(file.read(out.data(), 40000, 64, 257), "id 300 at position 40001");
  EXPECT_REFUSED(file.read(out.data(), 40002, 64, 300), "id 500 at position 40007");
  file.read(out.data(), 40008, 64, 257);

  // As int32 the id would be negative and pass a signed comparison.
  test::write_wide_tokens(path, {1, 4294967295U});
  EXPECT_REFUSED(TokenFile(path).check_ids(50257), "id 4294967295 at position 1");
}

TEST(TokenFile, ChecksTheLastTokenAndTheBorderOfTheVocabulary) {
  const TemporaryFolder folder;
  const std::string path = folder / "tokens.bin";
  std::vector<std::uint16_t> ids(16385, 0);
  ids.back() = 256;
  test::write_tokens(path, ids);
  TokenFile(path).check_ids(257);
  EXPECT_REFUSED(TokenFile(path).check_ids(256), "id 256 at position 16384");
}

}  // namespace
}  // namespace train_gpt

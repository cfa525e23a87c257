#include "model/file_checksum.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "test/model/temporary_folder.h"

namespace train_gpt {
namespace {

std::uint64_t hash_of(const std::string& text) { return hash_bytes(std::as_bytes(std::span(text))); }

// Computed by the same formula in Python. Manifests of older checkpoints hold such numbers.
TEST(FileChecksum, DoesNotChangeBetweenVersions) {
  EXPECT_EQ(hash_of("train_gpt"), 0xa2adf92f71968d4fU);
  std::string bytes;
  for (int i = 0; i < 64; ++i) bytes.push_back(static_cast<char>(i));
  EXPECT_EQ(hash_of(bytes), 0x783fe074ec6517a5U);
}

TEST(FileChecksum, TellsZerosAtTheEndApart) {
  EXPECT_NE(hash_of("abc"), hash_of(std::string("abc\0", 4)));
  EXPECT_NE(hash_of(""), hash_of(std::string(8, '\0')));
}

TEST(FileChecksum, EachPartHashesItsOwnBlocks) {
  const TemporaryFolder folder;
  std::vector<char> bytes((std::size_t{2} << 20) + 5);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 9);
  const std::string path = folder.write("file", bytes);
  const std::vector<std::uint64_t> all = block_hashes(path, 0, 1);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[2], hash_of(std::string(bytes.end() - 5, bytes.end())));
  EXPECT_EQ(block_hashes(path, 0, 2), (std::vector<std::uint64_t>{all[0], 0, all[2]}));
  EXPECT_EQ(block_hashes(path, 1, 2), (std::vector<std::uint64_t>{0, all[1], 0}));
}

}  // namespace
}  // namespace train_gpt

#include "commands/run/file_identity.h"

#include <algorithm>
#include <filesystem>

#include "model/file_checksum.h"
#include "model/optimizer.h"
#include "model/range_file.h"

namespace train_gpt {

FileIdentity identity_of(const std::string& path) {
  constexpr std::size_t kBlock = std::size_t{1} << 16;
  constexpr std::size_t kBlocks = 128;
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  std::vector<std::uint64_t> hashes = {bytes.size()};
  if (bytes.size() <= kBlock * kBlocks) {
    hashes.push_back(hash_bytes(bytes));
  } else {
    for (std::size_t b = 0; b < kBlocks; ++b) {
      hashes.push_back(hash_bytes(bytes.subspan((bytes.size() - kBlock) / (kBlocks - 1) * b, kBlock)));
    }
  }
  file.require_whole();
  return {.name = std::filesystem::path(path).filename().string(),
          .bytes = static_cast<std::int64_t>(bytes.size()),
          .checksum = combined_hash(hashes)};
}

std::vector<FileIdentity> identities_of(const std::vector<std::string>& paths) {
  std::vector<FileIdentity> identities;
  std::transform(paths.begin(), paths.end(), std::back_inserter(identities), identity_of);
  return identities;
}

}  // namespace train_gpt

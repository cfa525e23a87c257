#include "model/file_checksum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "data/splitmix64.h"
#include "model/range_file.h"

namespace train_gpt {

std::vector<std::uint64_t> block_hashes(const std::string& path, int part, int parts) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  const MappedFile file(path);
  const std::size_t size = file.bytes().size();
  std::vector<std::uint64_t> hashes((size + kBlock - 1) / kBlock, 0);
  for (std::size_t b = static_cast<std::size_t>(part); b < hashes.size(); b += static_cast<std::size_t>(parts)) {
    hashes[b] = hash_bytes(file.bytes().subspan(b * kBlock, std::min(kBlock, size - b * kBlock)));
  }
  file.require_whole();
  return hashes;
}

// Four chains side by side, since one would wait for its multiplications.
std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, 4> chains = {1, 2, 3, 4};
  std::size_t chain = 0;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t), chain = (chain + 1) % 4) {
    std::uint64_t word = 0;  // the last one may be filled up with zeros; the size below tells it apart
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    chains[chain] = std::rotl((chains[chain] ^ word) * kGoldenRatio, 29);
  }
  std::uint64_t hash = splitmix64(bytes.size());
  for (const std::uint64_t one : chains) hash = splitmix64(hash ^ one);
  return hash;
}

}  // namespace train_gpt

#include "pipeline/train/file_agreement.h"

#include <stdexcept>
#include <vector>

#include "model/file_checksum.h"
#include "model/optimizer.h"
#include "model/range_file.h"

namespace train_gpt {

void one_hot_sum_hashes(Communicator& world, std::span<std::uint64_t> hashes) {
  // 64-bit words travel as two halves, which a double holds exactly.
  std::vector<double> halves(hashes.size() * 2);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    halves[2 * i] = static_cast<double>(hashes[i] >> 32);
    halves[2 * i + 1] = static_cast<double>(hashes[i] & 0xffffffffU);
  }
  world.one_hot_sum(halves);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    hashes[i] = static_cast<std::uint64_t>(halves[2 * i]) << 32 | static_cast<std::uint64_t>(halves[2 * i + 1]);
  }
}

std::string file_checksum(Communicator& world, const std::string& path, std::int64_t bytes) {
  std::vector<std::uint64_t> hashes;
  std::vector<double> trouble(1, 0.0);
  try {
    if (static_cast<std::int64_t>(MappedFile(path).bytes().size()) != bytes) throw std::invalid_argument("size");
    hashes = block_hashes(path, world.rank(), world.size());
  } catch (const std::invalid_argument&) {
    trouble[0] = 1;
  }
  world.all_reduce_host(trouble);
  if (trouble[0] != 0) return "";
  one_hot_sum_hashes(world, hashes);
  return combined_hash(hashes);
}

}  // namespace train_gpt

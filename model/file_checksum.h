// Checksums of large files, by blocks, so that several ranks can share the reading: each hashes its own blocks, the
// caller combines the arrays, and combined_hash (model/optimizer.h) turns them into one number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace train_gpt {

// hashes[b] = 64-bit hash of block b (1 MiB) of the file for b = part, part + parts, ..; 0 for all other blocks. One
// hash per block of the file. Errors: std::invalid_argument naming the file.
std::vector<std::uint64_t> block_hashes(const std::string& path, int part, int parts);

// The checksum of the bytes, in order; it depends on their number, too.
std::uint64_t hash_bytes(std::span<const std::byte> bytes);

}  // namespace train_gpt

// The identity of a file that determines a run, which the run remembers and ranks compare: enough to tell another file
// behind the same path from the one that was meant, without reading hundreds of gigabytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

struct FileIdentity {
  std::string name;  // without its folder, for messages; does not count
  std::int64_t bytes = 0;
  std::string checksum;  // 16 hex digits over size, the first 64 KiB, and blocks spread over the rest

  bool operator==(const FileIdentity& other) const { return bytes == other.bytes && checksum == other.checksum; }
};

// Files of up to 8 MiB are read whole, of larger ones the first and 127 further blocks of 64 KiB at equal distances.
// The same file gives the same identity on every host. Throws std::invalid_argument naming the file.
FileIdentity identity_of(const std::string& path);

// In this order. The order counts: shards that change places are other data.
std::vector<FileIdentity> identities_of(const std::vector<std::string>& paths);

}  // namespace train_gpt

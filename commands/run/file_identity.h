// The identity of a file that determines a run, which the run remembers and ranks compare: enough to recognise another
// file at the same path without reading hundreds of gigabytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

struct FileIdentity {
  std::string name;  // without its folder, for messages; not compared
  std::int64_t bytes = 0;
  std::string checksum;  // 16 hex digits over size, the first 64 KiB, and blocks spread over the rest

  bool operator==(const FileIdentity& other) const { return bytes == other.bytes && checksum == other.checksum; }
};

// Files of up to 8 MiB are read whole, of larger ones the first and 127 further blocks of 64 KiB at equal distances.
// The same file gives the same identity on every host. Throws std::invalid_argument naming the file.
FileIdentity identity_of(const std::string& path);

// The identities of files, in this order, which counts: exchanged shards are other data.
std::vector<FileIdentity> identities_of(const std::vector<std::string>& paths);

}  // namespace train_gpt

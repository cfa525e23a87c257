// One token file in llm.c's layout, memory-mapped: 256 little-endian int32 of header (magic, version, token count),
// then the ids. Magic 20240520 with version 1 holds uint16 ids, 20240801 with version 7 uint32 ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/mapped_bytes.h"

namespace train_gpt {

inline constexpr std::int64_t kTokenHeaderBytes = 1024;
// The header counts tokens in an int32.
inline constexpr std::int64_t kMaxTokensPerFile = 2147483647;

class TokenFile {
 public:
  // Throws std::invalid_argument if the file is missing, is empty, is not a token file, is byte-swapped, has an unknown
  // version, holds no token or another number of bytes than its header says.
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t token_count() const { return token_count_; }
  int bytes_per_token() const { return bytes_per_token_; }  // 2 or 4

  // out: (count) ids of tokens first .. first+count-1. Throws std::invalid_argument naming file, position and id if
  // one is not below `vocab`, std::runtime_error if the file was cut off since it was opened.
  void read(std::int32_t* out, std::int64_t first, std::int64_t count, std::int64_t vocab) const;

  // Checks every id of the file, at the speed of memory or of the disk; throws as read() does.
  void check_ids(std::int64_t vocab) const;

 private:
  void require_whole() const;
  void check_range(std::int64_t first, std::int64_t count, std::int64_t vocab) const;

  std::string path_;
  std::int64_t token_count_ = 0;
  int bytes_per_token_ = 0;
  MappedBytes mapped_;
};

}  // namespace train_gpt

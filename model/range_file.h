// Files that several ranks write together, each its own byte ranges: one rank creates the file at its full size under a
// temporary name, all ranks write and sync, one rank publishes it under its name once all are done. A reader thus finds
// the old file or the whole new one. Reading is by memory map, so that a rank touches only what it needs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/mapped_bytes.h"

namespace train_gpt {

// Throws std::invalid_argument if something other than a regular file has this name, such as a pipe, a device or a
// link: a rename would replace it.
void check_replaceable(const std::string& path);

// The name under which `path` is written before it is published.
std::string temporary_name(const std::string& path);

// Creates `path` (or empties what an interrupted run left there) with `bytes` bytes. Throws std::runtime_error naming
// the file, the bytes and the system's reason.
void create_range_file(const std::string& path, std::int64_t bytes);

// An existing file, open for writing. Errors: std::runtime_error naming the file and the system's reason.
class RangeFile {
 public:
  explicit RangeFile(const std::string& path);
  ~RangeFile();
  RangeFile(const RangeFile&) = delete;
  RangeFile& operator=(const RangeFile&) = delete;

  void write(std::int64_t offset, const void* data, std::int64_t bytes);
  void sync();  // returns when the bytes are on the disk

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Renames temporary_name(path) to `path` and syncs the directory, so that the name also survives a power cut. To be
// called when every rank has synced.
void publish(const std::string& path);
// Returns when the names in a directory are on the disk.
void sync_directory(const std::string& directory);

// A whole file, mapped for reading. Throws std::invalid_argument naming the file and the reason.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return mapped_.bytes(); }
  // To be called after reading: throws std::runtime_error if the file was cut off meanwhile.
  void require_whole() const;

 private:
  std::string path_;
  MappedBytes mapped_;
};

}  // namespace train_gpt

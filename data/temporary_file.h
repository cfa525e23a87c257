// A file that gets its name only when it is complete, so that a crash or a full disk leaves an older file of that name
// as it was.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace train_gpt {

class TemporaryFile {
 public:
  // Creates `path`.partial-<process>; makes missing folders. Throws std::invalid_argument if that is not possible, or
  // if `path` exists and is no regular file (commit() would replace a device).
  explicit TemporaryFile(const std::string& path);
  // Continues after the first `bytes` bytes of `path`.partial, or of `path` if that has been finished since; 0: begins
  // anew. Throws std::runtime_error if there are fewer.
  TemporaryFile(const std::string& path, std::int64_t bytes);
  // Removes what was written unless commit() or keep() has been called.
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // Appends; buffered. These functions throw std::runtime_error naming the path.
  void append(std::span<const char> bytes);
  // Replaces bytes that were appended before.
  void overwrite(std::int64_t offset, std::span<const char> bytes);
  // Brings everything to the disk.
  void flush();
  // Gives the file its name, replacing an older one. Call flush() first.
  void commit();
  // Leaves the file under its temporary name, to be continued later. Call flush() first.
  void keep() { finished_ = true; }

 private:
  TemporaryFile(const std::string& path, const std::string& temporary_path, std::int64_t bytes);
  [[noreturn]] void fail(const std::string& what) const;
  void write_out();

  std::string path_;
  std::string temporary_path_;
  int descriptor_ = -1;
  bool finished_ = false;
  std::vector<char> buffer_;
};

}  // namespace train_gpt

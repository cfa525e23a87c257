#include "data/temporary_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace train_gpt {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

TemporaryFile::TemporaryFile(const std::string& path)
    : TemporaryFile(path, path + ".partial-" + std::to_string(getpid()), 0) {}

TemporaryFile::TemporaryFile(const std::string& path, std::int64_t bytes)
    : TemporaryFile(path, path + ".partial", bytes) {}

TemporaryFile::TemporaryFile(const std::string& path, const std::string& temporary_path, std::int64_t bytes)
    : path_(path), temporary_path_(temporary_path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) {
    throw std::invalid_argument("cannot make the folder '" + folder.string() + "' for '" + path +
                                "': " + error.message());
  }
  // Renaming would replace a device or a pipe by a file.
  const std::filesystem::file_status existing = std::filesystem::status(path, error);
  if (std::filesystem::exists(existing) && !std::filesystem::is_regular_file(existing)) {
    const bool folder_named = std::filesystem::is_directory(existing);
    throw std::invalid_argument("cannot write '" + path + "': it is " +
                                (folder_named ? "a directory; name a file in it" : "not a regular file; name another"));
  }
  if (bytes > 0 && !std::filesystem::exists(temporary_path_)) std::rename(path.c_str(), temporary_path_.c_str());
  // Never writes into an existing file of this name, a left-over or a planted link, except to continue it.
  if (bytes == 0) unlink(temporary_path_.c_str());
  const int fresh = bytes == 0 ? O_CREAT | O_EXCL : 0;
  descriptor_ = open(temporary_path_.c_str(), O_WRONLY | fresh | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw std::invalid_argument("cannot write '" + path + "': " + std::strerror(errno));
  const off_t present = lseek(descriptor_, 0, SEEK_END);
  if (present < bytes) {
    finished_ = true;
    throw std::runtime_error("'" + temporary_path_ + "' has " + std::to_string(present) + " bytes, but " +
                             std::to_string(bytes) + " had been written; remove it, and what was prepared with it");
  }
  if (ftruncate(descriptor_, bytes) != 0 || lseek(descriptor_, bytes, SEEK_SET) != bytes) fail("write");
  buffer_.reserve(kBufferBytes);
}

TemporaryFile::~TemporaryFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!finished_) unlink(temporary_path_.c_str());
}

void TemporaryFile::fail(const std::string& what) const {
  throw std::runtime_error("cannot " + what + " '" + path_ + "': " + std::strerror(errno));
}

void TemporaryFile::append(std::span<const char> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kBufferBytes) write_out();
}

void TemporaryFile::write_out() {
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t written = write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    done += static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

void TemporaryFile::overwrite(std::int64_t offset, std::span<const char> bytes) {
  write_out();
  if (pwrite(descriptor_, bytes.data(), bytes.size(), offset) != static_cast<ssize_t>(bytes.size())) fail("write");
}

void TemporaryFile::flush() {
  write_out();
  if (fsync(descriptor_) != 0) fail("write");
}

void TemporaryFile::commit() {
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) fail("rename the finished file to");
  finished_ = true;
}

}  // namespace train_gpt

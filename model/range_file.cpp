#include "model/range_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace train_gpt {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& doing) {
  throw std::runtime_error(path + ": cannot " + doing + ": " + std::strerror(errno));
}

// Closes the descriptor at the end of a scope.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

void check_replaceable(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  throw std::invalid_argument(path + ": is " + (S_ISDIR(status.st_mode) ? "a directory" : "not a regular file") +
                              " and would be replaced by a file: move it away or write elsewhere");
}

std::string temporary_name(const std::string& path) { return path + ".tmp"; }

void create_range_file(const std::string& path, std::int64_t bytes) {
  check_replaceable(path);
  unlink(path.c_str());  // an existing file may have other links, which would change, too
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0) fail(path, "create the file");
  if (ftruncate(file.get(), bytes) != 0) fail(path, "make room for " + std::to_string(bytes) + " bytes");
}

RangeFile::RangeFile(const std::string& path)
    : path_(path), descriptor_(open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(path_, "open the file for writing");
}

RangeFile::~RangeFile() { close(descriptor_); }

void RangeFile::write(std::int64_t offset, const void* data, std::int64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    // The system writes at most 2^31 bytes at a time, and may write fewer.
    const ssize_t written = pwrite(descriptor_, next, static_cast<std::size_t>(bytes), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, "write " + std::to_string(bytes) + " bytes at " + std::to_string(offset));
    next += written;
    offset += written;
    bytes -= written;
  }
}

void RangeFile::sync() {
  if (fsync(descriptor_) != 0) fail(path_, "flush the file to the disk");
}

void publish(const std::string& path) {
  const std::string temporary = temporary_name(path);
  check_replaceable(path);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail(temporary, "rename the file to " + path);
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  sync_directory(parent.empty() ? "." : parent.string());
}

void sync_directory(const std::string& directory) {
  const Descriptor folder(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || fsync(folder.get()) != 0) fail(directory, "flush the directory to the disk");
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const auto refuse = [&](const std::string& why) { throw std::invalid_argument(path_ + ": " + why); };
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) refuse(std::string("cannot open the file: ") + std::strerror(errno));
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) refuse(std::string("cannot read the file's size: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse("is not a regular file");
  if (status.st_size == 0) refuse("the file is empty");
  try {
    mapped_ = MappedBytes(file.get(), static_cast<std::size_t>(status.st_size));
  } catch (const std::system_error& error) {
    refuse("cannot map the file into memory: " + error.code().message());
  }
}

void MappedFile::require_whole() const {
  if (!mapped_.cut_off()) return;
  throw std::runtime_error(path_ + ": the file was cut off while it was being read: it had " +
                           std::to_string(bytes().size()) + " bytes, and some of them are gone");
}

}  // namespace train_gpt

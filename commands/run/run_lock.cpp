#include "commands/run/run_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

std::string name_in(const std::string& directory) { return directory + "/run.json"; }

int open_record(const std::string& path, int more) {
  const int descriptor = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | more, 0644);
  if (descriptor >= 0) return descriptor;
  throw std::invalid_argument(
      path + ": cannot be opened: " + (errno == ELOOP ? "it is a symbolic link; move it away" : std::strerror(errno)));
}

RunRecord read_record(int descriptor) {
  std::array<char, 4096> bytes{};
  const ssize_t size = pread(descriptor, bytes.data(), bytes.size(), 0);
  const Json json = Json::parse(bytes.data(), bytes.data() + std::max<ssize_t>(size, 0), nullptr, false);
  if (!json.is_object()) return {};
  RunRecord record;
  const auto take = [&](const char* name, auto& value, bool right_type) {
    if (right_type) json.at(name).get_to(value);
  };
  take("run", record.run, json.contains("run") && json["run"].is_string());
  take("host", record.host, json.contains("host") && json["host"].is_string());
  take("process", record.process, json.contains("process") && json["process"].is_number_integer());
  return record;
}

// True while `path` names the open file: a process that made it in vain removes it again.
bool still_named(const std::string& path, int descriptor) {
  struct stat named = {}, opened = {};
  return lstat(path.c_str(), &named) == 0 && fstat(descriptor, &opened) == 0 && named.st_ino == opened.st_ino &&
         named.st_dev == opened.st_dev;
}

// For file systems without locks: only a process of this host can be recognised.
bool lives_here(const RunRecord& record) {
  return record.host == host_name() && record.process > 0 && kill(static_cast<pid_t>(record.process), 0) == 0;
}

[[noreturn]] void refuse_living(const std::string& directory, const RunRecord& record) {
  throw std::invalid_argument(
      directory + ": a run is alive in this folder" +
      (record.process > 0 ? " (process " + std::to_string(record.process) + " on host " + record.host + ")"
                          : ", it has just begun") +
      ": give --output OTHER, or end that run first; train_gpt status " + directory + " shows what it does");
}

}  // namespace

RunLock RunLock::own(const std::string& directory) {
  const std::string path = name_in(directory);
  for (;;) {
    RunLock lock(path, open_record(path, O_CREAT));
    const bool free = flock(lock.descriptor_, LOCK_EX | LOCK_NB) == 0;
    const bool busy = !free && errno == EWOULDBLOCK;
    lock.earlier_ = read_record(lock.descriptor_);
    if (busy || (!free && lives_here(lock.earlier_))) refuse_living(directory, lock.earlier_);
    if (!still_named(path, lock.descriptor_)) continue;
    struct stat status = {};
    lock.empty_ = fstat(lock.descriptor_, &status) == 0 && status.st_size == 0;
    // Other ranks join a shared lock. This second attempt notices another program that has locked the file in between.
    if (free && flock(lock.descriptor_, LOCK_SH | LOCK_NB) != 0) refuse_living(directory, {});
    return lock;
  }
}

RunLock RunLock::join(const std::string& directory) {
  const std::string path = name_in(directory);
  RunLock lock(path, open_record(path, 0));
  if (flock(lock.descriptor_, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) refuse_living(directory, {});
  lock.empty_ = false;
  return lock;
}

bool RunLock::is_held(const std::string& directory) {
  const int descriptor = open(name_in(directory).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool busy = flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(descriptor);
  return busy;
}

RunLock::RunLock(RunLock&& other) noexcept { *this = std::move(other); }

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(earlier_, other.earlier_);
  std::swap(empty_, other.empty_);
  return *this;
}

RunLock::~RunLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool RunLock::is_named() const { return still_named(path_, descriptor_); }

void RunLock::write(const std::string& run) {
  const Json json = {
      {"format", "train_gpt run"}, {"version", 1}, {"run", run}, {"host", host_name()}, {"process", getpid()}};
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  // Writes in place, since the lock is on this file: one small write.
  const auto size = static_cast<ssize_t>(text.size());
  if (pwrite(descriptor_, text.data(), text.size(), 0) != size || ftruncate(descriptor_, size) != 0) {
    throw std::runtime_error(path_ + ": cannot be written: " + std::strerror(errno));
  }
  empty_ = false;
}

void RunLock::forget() {
  if (descriptor_ >= 0 && empty_) unlink(path_.c_str());
}

std::string new_run_id() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) {
    throw std::runtime_error(std::string("the system gives no random numbers: ") + std::strerror(errno));
  }
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(number));
  return text.data();
}

}  // namespace train_gpt

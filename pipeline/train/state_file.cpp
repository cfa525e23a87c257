#include "pipeline/train/state_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace train_gpt {
namespace {

constexpr std::uint64_t kMagic = 0x3174617473747067;  // "gptstat1"
constexpr std::size_t kTextBytes = 400;

std::string file_name(const std::string& directory, int rank) { return directory + "/state." + std::to_string(rank); }

// The rank that `name` (without directory) is the state of; -1: none.
int rank_of(const std::string& name) {
  const bool state = name.starts_with("state.") && name.size() > 6 && name.size() <= 15 &&
                     std::all_of(name.begin() + 6, name.end(), [](char c) { return c >= '0' && c <= '9'; });
  return state ? std::stoi(name.substr(6)) : -1;
}

// What an earlier run with more ranks left in `directory`: no rank of this one replaces it.
void remove_ranks_from(const std::string& directory, int ranks) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (rank_of(entry.path().filename().string()) >= ranks) std::filesystem::remove(entry.path(), ignored);
  }
}

void copy_text(std::array<char, kTextBytes>& out, const std::string& text) {
  const std::size_t length = std::min(text.size(), kTextBytes - 1);
  std::memcpy(out.data(), text.data(), length);
  std::memset(out.data() + length, 0, kTextBytes - length);
}

std::string text_of(const std::array<char, kTextBytes>& text) {
  return {text.data(), strnlen(text.data(), kTextBytes)};
}

}  // namespace

// The layout on disk. Readers may see a text while it is being written; that is good enough for people.
struct StateFile::Block {
  std::atomic<std::uint64_t> magic;
  std::int32_t rank;
  std::int32_t ranks;
  std::int64_t process;
  std::atomic<std::int64_t> step;
  std::atomic<double> beat;
  std::atomic<std::int32_t> ended;  // 0 running, 1 finished, 2 failed
  std::atomic<std::int32_t> stepping;
  std::array<char, kTextBytes> host;
  std::array<char, kTextBytes> doing;
  std::array<char, kTextBytes> failure;
};

double monotonic_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

StateFile::StateFile(const std::string& directory, int rank, int ranks) {
  const std::string path = file_name(directory, rank);
  // A new file: that of an earlier run may still be mapped by a process, and a link would lead elsewhere.
  unlink(path.c_str());
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  // With ftruncate a full disk would show at the first store only, as SIGBUS.
  const int error = descriptor < 0 ? errno : posix_fallocate(descriptor, 0, sizeof(Block));
  if (error != 0) {
    if (descriptor >= 0) close(descriptor);
    throw std::runtime_error(path + " cannot be written: " + std::strerror(error) + " (--output names the directory)");
  }
  void* mapped = mmap(nullptr, sizeof(Block), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (mapped == MAP_FAILED) throw std::runtime_error(path + " cannot be mapped: " + std::strerror(errno));
  block_ = static_cast<Block*>(mapped);
  block_->rank = rank;
  block_->ranks = ranks;
  block_->process = getpid();
  block_->step = -1;
  copy_text(block_->host, host_name());
  copy_text(block_->doing, "starting");
  beat();
  block_->magic.store(kMagic, std::memory_order_release);
  if (rank == 0) remove_ranks_from(directory, ranks);
}

StateFile::~StateFile() {
  if (block_ != nullptr) munmap(block_, sizeof(Block));
}

void StateFile::set_step(std::int64_t step) { block_->step = step; }
void StateFile::set_doing(const std::string& text) { copy_text(block_->doing, text); }
void StateFile::beat() { block_->beat.store(monotonic_seconds(), std::memory_order_relaxed); }
void StateFile::set_stepping(bool stepping) { block_->stepping.store(stepping ? 1 : 0, std::memory_order_relaxed); }
void StateFile::fail(const std::string& why) {
  copy_text(block_->failure, why);
  block_->ended.store(2, std::memory_order_release);
}
void StateFile::finish() {
  copy_text(block_->doing, "finished");
  block_->ended.store(1, std::memory_order_release);
}

std::unique_ptr<RankState> read_state(const std::string& directory, int rank) {
  const int descriptor = open(file_name(directory, rank).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  std::array<char, 2048> bytes{};
  const ssize_t count = read(descriptor, bytes.data(), bytes.size());
  close(descriptor);
  std::uint64_t magic = 0;
  std::memcpy(&magic, bytes.data(), sizeof magic);
  if (count != static_cast<ssize_t>(sizeof(StateFile::Block)) || magic != kMagic) return nullptr;
  const auto field = [&]<typename T>(std::size_t offset) {
    T value{};
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  using Block = StateFile::Block;
  using Text = std::array<char, kTextBytes>;
  auto state = std::make_unique<RankState>();
  state->rank = field.operator()<std::int32_t>(offsetof(Block, rank));
  state->ranks = field.operator()<std::int32_t>(offsetof(Block, ranks));
  state->process = field.operator()<std::int64_t>(offsetof(Block, process));
  state->step = field.operator()<std::int64_t>(offsetof(Block, step));
  state->beat = field.operator()<double>(offsetof(Block, beat));
  const auto ended = field.operator()<std::int32_t>(offsetof(Block, ended));
  state->stepping = field.operator()<std::int32_t>(offsetof(Block, stepping)) != 0;
  state->host = text_of(field.operator()<Text>(offsetof(Block, host)));
  state->doing = text_of(field.operator()<Text>(offsetof(Block, doing)));
  state->failure = ended == 2 ? text_of(field.operator()<Text>(offsetof(Block, failure))) : "";
  state->finished = ended == 1;
  return state;
}

std::vector<RankState> read_states(const std::string& directory) {
  std::vector<RankState> states;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const int rank = rank_of(entry.path().filename().string());
    if (rank < 0) continue;
    if (auto state = read_state(directory, rank)) states.push_back(*state);
  }
  std::sort(states.begin(), states.end(), [](const RankState& a, const RankState& b) { return a.rank < b.rank; });
  return states;
}

bool is_gone(const RankState& state) {
  if (state.finished || !state.failure.empty() || state.host != host_name()) return false;
  if (monotonic_seconds() < state.beat) return true;  // the beat is of a time before the last start of this host
  return kill(static_cast<pid_t>(state.process), 0) != 0 && errno == ESRCH;
}

}  // namespace train_gpt

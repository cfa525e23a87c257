#include "data/mapped_bytes.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

namespace train_gpt {

// One per mapping, in a list that only grows, since the signal handler may read it at any time; free ones are reused.
struct MappedPlace {
  std::atomic<bool> taken = true;
  std::atomic<const std::byte*> begin = nullptr;
  std::atomic<std::size_t> size = 0;
  std::atomic<bool> cut_off = false;
  MappedPlace* next = nullptr;
};

namespace {

std::atomic<MappedPlace*> places = nullptr;

MappedPlace* free_place() {
  for (MappedPlace* place = places; place != nullptr; place = place->next) {
    if (!place->taken.exchange(true)) return place;
  }
  auto* place = new MappedPlace;
  place->next = places;
  while (!places.compare_exchange_weak(place->next, place)) {
  }
  return place;
}

// Replaces the mapping by zeros from the missing page to its end.
bool fill_with_zeros(MappedPlace& place, const std::byte* at) {
  const std::byte* begin = place.begin;
  const std::byte* end = begin + place.size;
  if (begin == nullptr || at < begin || at >= end) return false;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* first = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(at) / page * page);
  place.cut_off = true;
  return mmap(first, static_cast<std::size_t>(end - first), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
              0) != MAP_FAILED;
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const int before = errno;
  for (MappedPlace* place = places; place != nullptr; place = place->next) {
    if (!fill_with_zeros(*place, static_cast<const std::byte*>(info->si_addr))) continue;
    errno = before;
    return;
  }
  constexpr std::string_view kText =
      "train_gpt: error: the system has no memory behind an address that is in use (SIGBUS): is /dev/shm full, which "
      "ranks of one host share? df /dev/shm shows it\n";
  static_cast<void>(!write(STDERR_FILENO, kText.data(), kText.size()));
  ::signal(signal, SIG_DFL);  // it is raised again at once
}

// Installed anew for each mapping, since MPI's libraries install a handler of their own when they start.
void listen() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

MappedBytes::MappedBytes(int descriptor, std::size_t size) {
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category());
  bytes_ = {static_cast<const std::byte*>(mapped), size};
  place_ = free_place();
  place_->cut_off = false;
  place_->size = size;
  place_->begin = bytes_.data();
  listen();
}

MappedBytes::~MappedBytes() {
  if (place_ == nullptr) return;
  place_->begin = nullptr;
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  place_->taken = false;
}

MappedBytes::MappedBytes(MappedBytes&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), place_(std::exchange(other.place_, nullptr)) {}

MappedBytes& MappedBytes::operator=(MappedBytes&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(place_, other.place_);
  return *this;
}

void MappedBytes::forget(std::size_t begin, std::size_t end) const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t first = begin / page * page, last = end / page * page;  // drops the page before, too
  if (first >= last || last > bytes_.size()) return;
  madvise(const_cast<std::byte*>(bytes_.data()) + first, last - first, MADV_DONTNEED);
}

bool MappedBytes::cut_off() const { return place_ != nullptr && place_->cut_off; }

}  // namespace train_gpt

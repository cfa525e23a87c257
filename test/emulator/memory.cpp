#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "block.h"
#include "device_properties.h"
#include "fault_handler.h"
#include "race.h"
#include "report.h"
#include "sanitizer.h"
#include "settings.h"

namespace emulator {
namespace {

constexpr std::size_t kRegionBytes = std::size_t{1} << 40;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kRepeatedFrom = std::size_t{1} << 30;

struct Allocation {
  MemoryKind kind = MemoryKind::device;
  bool live = true;
  bool open = false;  // accessible at present
  bool repeated = false;
  std::uint64_t number = 0;
  std::size_t bytes = 0;
  std::uintptr_t begin = 0;
  std::uintptr_t pages_begin = 0;
  std::uintptr_t pages_end = 0;
};

MemoryRegion region;
std::uintptr_t next_page = 0;
std::map<std::uintptr_t, Allocation> allocations;  // by pages_begin; freed ones stay, for reports
std::vector<Allocation*> opened;
bool device_running = false;
std::size_t bytes_in_use = 0;

void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }
std::uintptr_t value(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void reserve_region() {
  if (region.begin != 0) return;
  void* memory = mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("resources", "cannot reserve address space for device memory");
  region = {value(memory), value(memory) + kRegionBytes};
  next_page = region.begin + page_bytes();
  install_fault_handler();
}

// The allocation whose pages hold the address, or the nearest one before it.
Allocation* allocation_at_or_before(std::uintptr_t at) {
  if (at < region.begin || at >= region.end) return nullptr;
  auto after = allocations.upper_bound(at);
  return after == allocations.begin() ? nullptr : &std::prev(after)->second;
}

Allocation* live_allocation(std::uintptr_t at) {
  Allocation* allocation = allocation_at_or_before(at);
  return allocation != nullptr && allocation->live && at < allocation->pages_end ? allocation : nullptr;
}

void open(Allocation& allocation) {
  if (allocation.kind != MemoryKind::device || allocation.open) return;
  mprotect(address(allocation.pages_begin), allocation.pages_end - allocation.pages_begin, PROT_READ | PROT_WRITE);
  allocation.open = true;
  opened.push_back(&allocation);
}

void close_all() {
  for (Allocation* allocation : opened) {
    if (allocation->live) {
      mprotect(address(allocation->pages_begin), allocation->pages_end - allocation->pages_begin, PROT_NONE);
    }
    allocation->open = false;
  }
  opened.clear();
}

// One small piece of memory again and again (Settings::repeated_memory). False: there is no room.
bool map_repeatedly(const Allocation& allocation) {
  const auto piece = static_cast<std::size_t>(settings().repeated_memory);
  const int file = memfd_create("repeated device memory", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(piece)) != 0) return false;
  bool mapped = true;
  for (std::uintptr_t at = allocation.pages_begin; at < allocation.pages_end && mapped; at += piece) {
    const std::size_t bytes = std::min<std::size_t>(piece, allocation.pages_end - at);
    mapped = mmap(address(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  }
  close(file);
  if (mapped) std::memset(address(allocation.pages_begin), 0xFF, piece);
  return mapped;
}

// The unused bytes before and after the allocation in its pages.
void set_red_zones(const Allocation& allocation, bool closed) {
  const auto apply = closed ? close_memory : open_memory;
  apply(address(allocation.pages_begin), allocation.begin - allocation.pages_begin);
  apply(address(allocation.begin + allocation.bytes), allocation.pages_end - allocation.begin - allocation.bytes);
}

bool all_poison(std::uintptr_t begin, std::uintptr_t end) {
  for (std::uintptr_t at = begin; at < end; ++at) {
    if (*static_cast<const unsigned char*>(address(at)) != 0xFF) return false;
  }
  return true;
}

void check_range(const void* pointer, std::size_t bytes, const char* what, bool open_it) {
  if (bytes == 0) return;
  const std::uintptr_t at = value(pointer);
  Allocation* allocation = live_allocation(at);
  if (allocation == nullptr || at < allocation->begin || at + bytes > allocation->begin + allocation->bytes) {
    const bool elsewhere = at < region.begin || at >= region.end;
    fail(elsewhere ? "host-pointer" : "memory-range",
         std::string(what) + ": " + std::to_string(bytes) + " bytes at " + describe_address(pointer) +
             (elsewhere ? ", which the device cannot access" : ", which do not lie inside it"));
  }
  if (open_it) open(*allocation);
}

}  // namespace

void* allocate_memory(MemoryKind kind, std::size_t bytes) {
  reserve_region();
  if (bytes == 0) return nullptr;
  const std::size_t usable = round_up(bytes, kAlignment);
  const std::size_t pages = round_up(usable, page_bytes());
  if (kind == MemoryKind::device && bytes_in_use + usable > device_properties().totalGlobalMem) return nullptr;
  if (next_page + pages + 2 * page_bytes() > region.end) return nullptr;
  Allocation allocation;
  allocation.kind = kind;
  allocation.number = allocations.size() + 1;
  allocation.bytes = bytes;
  allocation.pages_begin = next_page;
  allocation.pages_end = next_page + pages;
  allocation.begin = allocation.pages_end - usable;  // the end meets the guard page
  next_page = allocation.pages_end + page_bytes();
  if (settings().repeated_memory > 0 && bytes > kRepeatedFrom) {
    allocation.repeated = true;
    allocation.begin = allocation.pages_begin;
    if (!map_repeatedly(allocation)) return nullptr;
  } else {
    if (mprotect(address(allocation.pages_begin), pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
    std::memset(address(allocation.pages_begin), 0xFF, pages);
    set_red_zones(allocation, true);
  }
  race::allocations_changed();
  if (kind == MemoryKind::device) {
    mprotect(address(allocation.pages_begin), pages, PROT_NONE);
    bytes_in_use += usable;
  }
  allocations[allocation.pages_begin] = allocation;
  return address(allocation.begin);
}

void free_memory(MemoryKind kind, void* pointer, const char* what) {
  if (pointer == nullptr) return;
  Allocation* allocation = allocation_at_or_before(value(pointer));
  if (allocation == nullptr || allocation->begin != value(pointer) || allocation->kind != kind || !allocation->live) {
    fail("invalid-free", std::string(what) + " of " + describe_address(pointer));
  }
  {
    const DeviceMemoryOpen access;
    check_red_zones(pointer, what);
  }
  if (!allocation->repeated) set_red_zones(*allocation, false);
  allocation->live = false;
  race::allocations_changed();
  if (kind == MemoryKind::device) bytes_in_use -= round_up(allocation->bytes, kAlignment);
  mmap(address(allocation->pages_begin), allocation->pages_end - allocation->pages_begin, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

std::size_t device_bytes_in_use() { return bytes_in_use; }

void check_red_zones(const void* pointer, const char* what) {
  Allocation* allocation = live_allocation(value(pointer));
  if (allocation == nullptr || allocation->repeated) return;  // what is unused here is used elsewhere in the piece
  open(*allocation);
  set_red_zones(*allocation, false);
  const std::uintptr_t end = allocation->begin + allocation->bytes;
  if (!all_poison(allocation->pages_begin, allocation->begin) || !all_poison(end, allocation->pages_end)) {
    fail("out-of-bounds",
         std::string(what) + " finds bytes written outside " + describe_address(address(allocation->begin)));
  }
  set_red_zones(*allocation, true);
}

std::string describe_address(const void* pointer) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", pointer);
  const std::uintptr_t at = value(pointer);
  const Allocation* allocation = allocation_at_or_before(at);
  if (at < region.begin || at >= region.end) return std::string("host memory (") + text + ")";
  if (allocation == nullptr || at >= allocation->pages_end + page_bytes()) {
    return std::string("device address space that holds no allocation (") + text + ")";
  }
  const bool before = at < allocation->begin;
  const std::size_t distance = before ? allocation->begin - at : at - allocation->begin;
  return (before ? std::to_string(distance) + " bytes before" : "byte " + std::to_string(distance) + " of") + " a " +
         (allocation->live ? "" : "freed ") + (allocation->kind == MemoryKind::device ? "device" : "pinned host") +
         " allocation of " + std::to_string(allocation->bytes) + " bytes (number " +
         std::to_string(allocation->number) + ")";
}

MemoryRange find_memory(const void* pointer) {
  const Allocation* allocation = live_allocation(value(pointer));
  if (allocation == nullptr) return {};
  return {allocation->kind, allocation->begin, allocation->bytes};
}

MemoryRegion memory_region() { return region; }

void require_device_range(const void* pointer, std::size_t bytes, const char* what) {
  check_range(pointer, bytes, what, false);
}

void device_reads(const void* pointer, std::size_t bytes, const char* what) {
  check_range(pointer, bytes, what, true);
  race::access(pointer, bytes, race::Access::read, __builtin_return_address(0));
}

void device_writes(const void* pointer, std::size_t bytes, const char* what) {
  check_range(pointer, bytes, what, true);
  race::access(pointer, bytes, race::Access::write, __builtin_return_address(0));
}

DeviceMemoryOpen::DeviceMemoryOpen(bool open) : before_(device_running) {
  if (open == before_) return;
  reserve_region();
  device_running = open;
  if (open) {
    install_fault_handler();
  } else {
    close_all();
  }
}

DeviceMemoryOpen::~DeviceMemoryOpen() {
  if (device_running && !before_) close_all();
  device_running = before_;
}

bool open_on_fault(const void* pointer) {
  Allocation* allocation = live_allocation(value(pointer));
  if (!device_running || allocation == nullptr || allocation->kind != MemoryKind::device || allocation->open)
    return false;
  open(*allocation);
  return true;
}

void report_fault(const void* pointer, const void* code_address) {
  const std::string place = "\n  at " + source_line(static_cast<const char*>(code_address) + 1);
  const std::uintptr_t at = value(pointer);
  const Allocation* allocation = allocation_at_or_before(at);
  const bool inside = allocation != nullptr && at >= allocation->begin && at < allocation->begin + allocation->bytes;
  if (at < region.begin || at >= region.end) {
    fail("invalid-address", "access to " + describe_address(pointer) +
                                (pointer == nullptr ? ": a null pointer or a misaligned vector" : "") + place);
  }
  if (inside && !allocation->live) fail("use-after-free", "access to " + describe_address(pointer) + place);
  if (current_thread == nullptr && inside) {
    fail("host-access", "host code accesses device memory: " + describe_address(pointer) + place);
  }
  fail("out-of-bounds", "access to " + describe_address(pointer) + place);
}

}  // namespace emulator

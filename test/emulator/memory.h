// Emulated device memory and pinned host memory. Every allocation stands alone between guard pages, starts out as NaN
// (bytes 0xFF), and is inaccessible to the host (PROT_NONE) except while stream operations run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator {

// The kind of memory at [pointer, pointer + bytes).
enum class MemoryKind : std::uint8_t { pageable, pinned, device };

struct MemoryRange {
  MemoryKind kind = MemoryKind::pageable;
  std::uintptr_t begin = 0;  // of the allocation that holds the pointer (device, pinned)
  std::size_t bytes = 0;
};
MemoryRange find_memory(const void* pointer);

// For emulated library calls (copies, products, collectives), inside a stream operation: demands that the range lies in
// one live allocation of the device (or in pinned memory), tells the race detector that the running operation reads or
// writes it, and reports an error that names `what` otherwise. Zero bytes are always right.
void device_reads(const void* pointer, std::size_t bytes, const char* what);
void device_writes(const void* pointer, std::size_t bytes, const char* what);
// The range check alone, to be made at the call: no access is recorded.
void require_device_range(const void* pointer, std::size_t bytes, const char* what);

// The work of cudaMalloc and cudaHostAlloc; nullptr when the device's memory (device_properties().totalGlobalMem) is
// used up.
void* allocate_memory(MemoryKind kind, std::size_t bytes);
// Reports a pointer that is not the start of a live allocation of this kind. nullptr is right. Further accesses to the
// range are reported as use after free: addresses are never given out twice.
void free_memory(MemoryKind kind, void* pointer, const char* what);
std::size_t device_bytes_in_use();
// Looks for writes into the unused bytes around the allocation that holds the pointer, if any.
void check_red_zones(const void* pointer, const char* what);
// "byte 12 of a device allocation of 64 bytes (number 3)", or what else the address is.
std::string describe_address(const void* pointer);

// The address range that all emulated memory lives in.
struct MemoryRegion {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
MemoryRegion memory_region();

// Device memory is accessible while one of these lives: each allocation is opened when it is first touched and all are
// closed at the end. System calls do not count as touching: hand them copies, or call device_reads or device_writes on
// the range before. Stream operations run with it open already.
class DeviceMemoryOpen {
 public:
  explicit DeviceMemoryOpen(bool open = true);  // false: closed for its lifetime (host functions)
  ~DeviceMemoryOpen();
  DeviceMemoryOpen(const DeviceMemoryOpen&) = delete;
  DeviceMemoryOpen& operator=(const DeviceMemoryOpen&) = delete;

 private:
  bool before_;
};

}  // namespace emulator

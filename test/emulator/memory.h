// Emulated device memory and pinned host memory. Every allocation stands alone between guard pages, starts out as NaN
// (bytes 0xFF), and is inaccessible to the host (PROT_NONE) except while stream operations run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator {

// What [pointer, pointer + bytes) is.
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

// Device memory is accessible while one of these lives. Stream operations have it already.
class DeviceMemoryOpen {
 public:
  DeviceMemoryOpen();
  ~DeviceMemoryOpen();
  DeviceMemoryOpen(const DeviceMemoryOpen&) = delete;
  DeviceMemoryOpen& operator=(const DeviceMemoryOpen&) = delete;
};

}  // namespace emulator

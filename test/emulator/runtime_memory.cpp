// cudaMalloc*, cudaFree*, cudaMemcpy*, cudaMemset*.
#include <cuda_runtime_api.h>

#include <cstring>
#include <list>
#include <vector>

#include "counters.h"
#include "device_properties.h"
#include "first_use.h"
#include "memory.h"
#include "report.h"
#include "runtime_error.h"
#include "stream_queue.h"

namespace emulator {
namespace {

cudaError_t allocate(MemoryKind kind, void** pointer, std::size_t bytes, const char* what) {
  ++counters().allocations;
  allocates(what);
  *pointer = allocate_memory(kind, bytes);
  return *pointer == nullptr && bytes != 0 ? remember(cudaErrorMemoryAllocation) : cudaSuccess;
}

// A rectangle of memory: `height` rows of `width` bytes. A plain copy has one row.
struct Rows {
  std::size_t width;
  std::size_t height;
};

struct Side {
  char* begin;
  std::size_t pitch;
  MemoryKind kind;
};

// Pinned host memory that copies still to run will read: it must not be poisoned.
std::list<std::pair<const char*, const char*>> unread_host_ranges;

bool will_be_read(const char* begin, const char* end) {
  for (const auto& [from, to] : unread_host_ranges) {
    if (begin < to && from < end) return true;
  }
  return false;
}

Side side(const void* pointer, std::size_t pitch, Rows rows, const char* what) {
  char* begin = static_cast<char*>(const_cast<void*>(pointer));
  const MemoryKind kind = find_memory(pointer).kind;
  if (pointer == nullptr && rows.width * rows.height != 0)
    fail("memory-range", std::string(what) + " with a null pointer");
  if (kind != MemoryKind::pageable ||
      (pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) >= memory_region().begin &&
       reinterpret_cast<std::uintptr_t>(pointer) < memory_region().end)) {
    for (std::size_t row = 0; row < rows.height; ++row) require_device_range(begin + row * pitch, rows.width, what);
  }
  return {begin, pitch, kind};
}

void check_direction(const Side& to, const Side& from, cudaMemcpyKind kind, const char* what) {
  if (kind == cudaMemcpyDefault) return;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device != (to.kind == MemoryKind::device) || from_device != (from.kind == MemoryKind::device)) {
    const auto name = [](MemoryKind k) { return k == MemoryKind::device ? "device" : "host"; };
    fail("copy-direction", std::string(what) + " copies from " + name(from.kind) + " to " + name(to.kind) +
                               " memory, but its kind says otherwise");
  }
}

void copy_rows(const Side& to, const Side& from, Rows rows, const char* what) {
  for (std::size_t row = 0; row < rows.height; ++row) {
    char* target = to.begin + row * to.pitch;
    const char* source = from.begin + row * from.pitch;
    if (from.kind != MemoryKind::pageable) device_reads(source, rows.width, what);
    if (to.kind != MemoryKind::pageable) device_writes(target, rows.width, what);
    std::memmove(target, source, rows.width);
  }
}

std::string describe_copy(const char* what, Rows rows) {
  return std::string(what) + "(" + std::to_string(rows.width * rows.height) + " bytes)";
}

// Copies to pageable host memory, and all that the host asked to wait for, are complete on return. Sources in pageable
// memory may be reused on return; those in pinned memory only when the copy has run.
cudaError_t copy(Side to, Side from, Rows rows, cudaMemcpyKind kind, Stream& stream, bool wait, const char* what) {
  ++counters().copies;
  check_direction(to, from, kind, what);
  std::shared_ptr<std::vector<char>> snapshot;
  auto unread = unread_host_ranges.end();
  if (from.kind == MemoryKind::pageable) {
    snapshot = std::make_shared<std::vector<char>>(rows.width * rows.height);
    for (std::size_t row = 0; row < rows.height; ++row) {
      std::memcpy(snapshot->data() + row * rows.width, from.begin + row * from.pitch, rows.width);
    }
    from = {snapshot->data(), rows.width, MemoryKind::pageable};
  } else if (from.kind == MemoryKind::pinned) {
    unread_host_ranges.emplace_back(from.begin, from.begin + rows.height * from.pitch);
    unread = std::prev(unread_host_ranges.end());
  }
  if (to.kind == MemoryKind::pinned && !will_be_read(to.begin, to.begin + rows.height * to.pitch)) {
    // A program that reads before synchronising gets NaN.
    for (std::size_t row = 0; row < rows.height; ++row) std::memset(to.begin + row * to.pitch, 0xFF, rows.width);
  }
  issue(stream, OperationKind::device, describe_copy(what, rows), [=, keep = snapshot] {
    copy_rows(to, from, rows, what);
    if (unread != unread_host_ranges.end()) unread_host_ranges.erase(unread);
    return true;
  });
  if (wait || to.kind == MemoryKind::pageable) {
    ++counters().host_synchronisations;
    synchronise(stream, what);
  }
  return cudaSuccess;
}

cudaError_t fill(void* pointer, std::size_t pitch, int value, Rows rows, Stream& stream, const char* what) {
  ++counters().copies;
  const Side target = side(pointer, pitch, rows, what);
  if (target.kind == MemoryKind::pageable && rows.width * rows.height != 0) {
    fail("host-pointer", std::string(what) + " of " + describe_address(pointer));
  }
  issue(stream, OperationKind::device, describe_copy(what, rows), [=] {
    for (std::size_t row = 0; row < rows.height; ++row) {
      device_writes(target.begin + row * target.pitch, rows.width, what);
      std::memset(target.begin + row * target.pitch, value, rows.width);
    }
    return true;
  });
  return cudaSuccess;
}

Stream& default_stream() { return find_stream(nullptr, "default stream"); }

}  // namespace
}  // namespace emulator

using namespace emulator;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return allocate(MemoryKind::device, pointer, bytes, "cudaMalloc");
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return allocate(MemoryKind::device, pointer, bytes, "cudaMallocAsync");
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return allocate(MemoryKind::pinned, pointer, bytes, "cudaHostAlloc");
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return allocate(MemoryKind::pinned, pointer, bytes, "cudaMallocHost");
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  ++counters().frees;
  ++counters().host_synchronisations;
  synchronise_all("cudaFree");
  free_memory(MemoryKind::device, pointer, "cudaFree");
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  ++counters().frees;
  issue(find_stream(stream, "cudaFreeAsync"), OperationKind::order, "cudaFreeAsync", [pointer] {
    free_memory(MemoryKind::device, pointer, "cudaFreeAsync");
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  ++counters().frees;
  ++counters().host_synchronisations;
  synchronise_all("cudaFreeHost");
  free_memory(MemoryKind::pinned, pointer, "cudaFreeHost");
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *total = device_properties().totalGlobalMem;
  *free_bytes = *total - device_bytes_in_use();
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  const MemoryKind kind = find_memory(pointer).kind;
  attributes->type = kind == MemoryKind::device   ? cudaMemoryTypeDevice
                     : kind == MemoryKind::pinned ? cudaMemoryTypeHost
                                                  : cudaMemoryTypeUnregistered;
  attributes->devicePointer = kind == MemoryKind::pageable ? nullptr : const_cast<void*>(pointer);
  attributes->hostPointer = kind == MemoryKind::pinned ? const_cast<void*>(pointer) : nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Rows rows{bytes, 1};
  return copy(side(to, bytes, rows, "cudaMemcpyAsync"), side(from, bytes, rows, "cudaMemcpyAsync"), rows, kind,
              find_stream(stream, "cudaMemcpyAsync"), false, "cudaMemcpyAsync");
}

// A copy within the device is not waited for.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const Rows rows{bytes, 1};
  const Side target = side(to, bytes, rows, "cudaMemcpy");
  const Side source = side(from, bytes, rows, "cudaMemcpy");
  const bool inside = target.kind == MemoryKind::device && source.kind == MemoryKind::device;
  return copy(target, source, rows, kind, default_stream(), !inside, "cudaMemcpy");
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return remember(cudaErrorInvalidPitchValue);
  const Rows rows{width, height};
  return copy(side(to, to_pitch, rows, "cudaMemcpy2DAsync"), side(from, from_pitch, rows, "cudaMemcpy2DAsync"), rows,
              kind, find_stream(stream, "cudaMemcpy2DAsync"), false, "cudaMemcpy2DAsync");
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  if (width > to_pitch || width > from_pitch) return remember(cudaErrorInvalidPitchValue);
  const Rows rows{width, height};
  return copy(side(to, to_pitch, rows, "cudaMemcpy2D"), side(from, from_pitch, rows, "cudaMemcpy2D"), rows, kind,
              default_stream(), true, "cudaMemcpy2D");
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  return fill(pointer, bytes, value, {bytes, 1}, default_stream(), "cudaMemset");
}
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  return fill(pointer, bytes, value, {bytes, 1}, find_stream(stream, "cudaMemsetAsync"), "cudaMemsetAsync");
}
cudaError_t cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return fill(pointer, pitch, value, {width, height}, find_stream(stream, "cudaMemset2DAsync"), "cudaMemset2DAsync");
}

// __device__ and __constant__ variables are ordinary variables of the program here.
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind) {
  ++counters().host_synchronisations;
  synchronise_all("cudaMemcpyToSymbol");
  std::memcpy(static_cast<char*>(const_cast<void*>(symbol)) + offset, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind) {
  ++counters().host_synchronisations;
  synchronise_all("cudaMemcpyFromSymbol");
  std::memcpy(to, static_cast<const char*>(symbol) + offset, bytes);
  return cudaSuccess;
}

}  // extern "C"

// Devices, errors, kernel attributes, occupancy.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "device_properties.h"
#include "function_attributes.h"
#include "report.h"
#include "runtime_error.h"
#include "settings.h"

namespace emulator {
namespace {

cudaError_t last_error = cudaSuccess;
int current_device = 0;
std::map<const void*, int> raised_shared_limits;  // kernel -> bytes

bool is_device(int device) { return device >= 0 && device < static_cast<int>(visible_devices().size()); }

cudaDeviceProp h100() {
  cudaDeviceProp p{};
  const std::string& card = settings().card;
  std::snprintf(p.name, sizeof p.name, "%s", card.empty() ? "NVIDIA H100 (host emulator)" : card.c_str());
  p.major = 9;
  p.minor = 0;
  p.totalGlobalMem = static_cast<std::size_t>(settings().memory_gib * (1 << 30));
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = 227 << 10;
  p.sharedMemPerMultiprocessor = 228 << 10;
  p.reservedSharedMemPerBlock = 1 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  const int block[3] = {1024, 1024, 64};
  const int grid[3] = {2147483647, 65535, 65535};
  std::copy(block, block + 3, p.maxThreadsDim);
  std::copy(grid, grid + 3, p.maxGridSize);
  p.totalConstMem = 64 << 10;
  p.multiProcessorCount = 132;
  p.l2CacheSize = 50 << 20;
  p.memoryBusWidth = 5120;
  p.memPitch = 2147483647;
  p.textureAlignment = 512;
  p.concurrentKernels = 1;
  p.asyncEngineCount = 3;
  p.unifiedAddressing = 1;
  p.canMapHostMemory = 1;
  p.streamPrioritiesSupported = 1;
  p.memoryPoolsSupported = 1;
  p.ECCEnabled = 1;
  return p;
}

}  // namespace

cudaError_t remember(cudaError_t error) {
  last_error = error;
  return error;
}

cudaDeviceProp& device_properties() {
  static cudaDeviceProp properties = h100();
  return properties;
}

std::size_t dynamic_shared_limit(const void* kernel) {
  const auto raised = raised_shared_limits.find(kernel);
  const std::size_t otherwise = device_properties().sharedMemPerBlock;
  return raised == raised_shared_limits.end() ? otherwise
                                              : std::max(otherwise, static_cast<std::size_t>(raised->second));
}

}  // namespace emulator

using emulator::device_properties;
using emulator::is_device;
using emulator::remember;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = emulator::last_error;
  emulator::last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return emulator::last_error; }

// The texts of the errors that the emulator returns.
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidPitchValue:
      return "cudaErrorInvalidPitchValue";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    default:
      return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidPitchValue:
      return "invalid pitch argument";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    default:
      return "unrecognized error code";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (emulator::settings().old_driver) return remember(cudaErrorInsufficientDriver);
  const std::size_t visible = emulator::visible_devices().size();
  if (visible == 0) return remember(cudaErrorNoDevice);
  *count = static_cast<int>(visible);
  return cudaSuccess;
}

// Several devices can be counted and chosen, but all share one memory and one set of streams.
cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  emulator::current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = emulator::current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  *properties = device_properties();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const cudaDeviceProp& p = device_properties();
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(p.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = static_cast<int>(p.reservedSharedMemPerBlock);
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = p.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = p.maxBlocksPerMultiProcessor;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = p.regsPerBlock;
      break;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = p.regsPerMultiprocessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = p.memoryBusWidth;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 2'619'000;
      break;  // kHz
    case cudaDevAttrClockRate:
      *value = 1'755'000;
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = p.memoryPoolsSupported;
      break;
    case cudaDevAttrConcurrentKernels:
      *value = p.concurrentKernels;
      break;
    case cudaDevAttrComputeMode:
      *value = emulator::settings().exclusive ? cudaComputeModeExclusiveProcess : cudaComputeModeDefault;
      break;
    default:
      emulator::fail("unsupported",
                     "cudaDeviceGetAttribute(" + std::to_string(attribute) + "): add it to runtime_device.cpp");
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  const int machines = emulator::visible_devices()[static_cast<std::size_t>(device)];
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", machines + 1);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<std::size_t>(value) > device_properties().sharedMemPerBlockOptin) {
    return remember(cudaErrorInvalidValue);
  }
  emulator::raised_shared_limits[kernel] = value;
  return cudaSuccess;
}

// Registers and static shared memory are nvcc's to know: 0 here.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  *attributes = {};
  attributes->maxThreadsPerBlock = device_properties().maxThreadsPerBlock;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(emulator::dynamic_shared_limit(kernel));
  attributes->binaryVersion = attributes->ptxVersion = 10 * device_properties().major + device_properties().minor;
  return cudaSuccess;
}

// By threads, blocks and dynamic shared memory alone.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                   size_t dynamic_shared, unsigned) {
  const cudaDeviceProp& p = device_properties();
  if (threads < 1 || threads > p.maxThreadsPerBlock || dynamic_shared > p.sharedMemPerBlockOptin) {
    *blocks = 0;
    return remember(cudaErrorInvalidValue);
  }
  const int rounded = (threads + p.warpSize - 1) / p.warpSize * p.warpSize;
  const std::size_t shared = dynamic_shared + p.reservedSharedMemPerBlock;
  *blocks = std::min({p.maxBlocksPerMultiProcessor, p.maxThreadsPerMultiProcessor / rounded,
                      static_cast<int>(p.sharedMemPerMultiprocessor / shared)});
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}

}  // extern "C"

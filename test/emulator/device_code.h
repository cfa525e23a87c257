// Everything that device code and launches need beyond NVIDIA's headers. Included by the cuda_runtime.h shim; keywords
// such as __global__ are already empty in NVIDIA's headers when another compiler than nvcc reads them.
#pragma once

#include "block.h"
#include "launch.h"
#include "shared_memory.h"
//
#include "atomics.h"
#include "device_math.h"
#include "sites.h"
#include "warp.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

#define threadIdx (::emulator::current_thread->index)
#define blockIdx (::emulator::the_block.index)
#define blockDim (::emulator::the_block.launch->block)
#define gridDim (::emulator::the_block.launch->grid)
inline constexpr int warpSize = 32;

// Typed forms that NVIDIA's header shows only to nvcc.
template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return ::cudaMemcpyToSymbol(static_cast<const void*>(&symbol), from, bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return ::cudaMemcpyFromSymbol(to, static_cast<const void*>(&symbol), bytes, offset, kind);
}

#define cudaStreamWaitEvent emulator::stream_wait_event
#define cudaEventRecord emulator::event_record
#define cudaEventSynchronize emulator::event_synchronize
#define cudaStreamSynchronize emulator::stream_synchronize
#define cudaDeviceSynchronize emulator::device_synchronize

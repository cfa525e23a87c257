// The cuda device (make_cuda_device of kernels/device.h) for those who work on the same GPU: its stream, and how full
// that is.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device.h"

namespace train_gpt::cuda {

// True for a device made by make_cuda_device.
bool is_cuda(const Device& device);
// The compute stream of a device made by make_cuda_device.
cudaStream_t compute_stream(const Device& device);

// Operations that were enqueued on it so far. Each is at most kMostLaunches kernels, copies and records.
std::int64_t operations_enqueued(const Device& device);
inline constexpr int kMostLaunches = 4;

}  // namespace train_gpt::cuda

// The cuda device (make_cuda_device of kernels/device.h) for those who work on the same GPU: its stream.
#pragma once

#include <cuda_runtime.h>

#include "kernels/device.h"

namespace train_gpt::cuda {

// True for a device made by make_cuda_device.
bool is_cuda(const Device& device);
// The compute stream of a device made by make_cuda_device.
cudaStream_t compute_stream(const Device& device);

}  // namespace train_gpt::cuda

// The error that cudaGetLastError returns and cudaPeekAtLastError shows.
#pragma once

#include <cuda_runtime_api.h>

namespace emulator {

// Keeps an error for cudaGetLastError and returns it.
cudaError_t remember(cudaError_t error);

}  // namespace emulator

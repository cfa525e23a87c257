// The emulated device's properties: those of an H100 unless a test sets others. Limits are checked against them.
#pragma once

#include <cuda_runtime_api.h>

namespace emulator {

// May be changed between launches. All devices of the process (Settings::device_count) share them.
cudaDeviceProp& device_properties();

}  // namespace emulator

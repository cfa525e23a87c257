// Per-kernel settings (cudaFuncSetAttribute).
#pragma once

#include <cstddef>

namespace emulator {

// Dynamic shared memory that a launch of the kernel may ask for: 48 KiB unless raised.
std::size_t dynamic_shared_limit(const void* kernel);

}  // namespace emulator

// First uses on a GPU, and why they may not happen while a message waits for another rank.
//
// The code of a kernel is loaded when it is first launched (CUDA_MODULE_LOADING=LAZY, the default since CUDA 12.2),
// that of a cuBLASLt algorithm when it first runs, whatever the variable says - and there are several for one
// algorithm, such as with and without beta; NCCL connects its ranks anew for an algorithm that a collective of another
// size asks for (NCCL_RUNTIME_CONNECT). Loading, like cudaMalloc and cudaMallocHost, may wait until the device is idle
// (CUDA programming guide, "Lazy Loading", "Concurrent Execution"). If the device is busy with a receive whose sender
// waits for this rank, nothing moves any more. It does so only now and then, so the emulator refuses it always: error
// [first-use].
#pragma once

#include <string>

namespace emulator {

// CUDA reads its environment variables now, once and for all. An MPI that knows CUDA starts it in MPI_Init.
void cuda_starts();

// Each ends the process with a report if it is the first of its kind while a message is pending.
void first_launch(const void* function, const std::string& what);
void first_product(const std::string& what);
void first_collective(const std::string& what);
// Every time.
void allocates(const std::string& what);

}  // namespace emulator

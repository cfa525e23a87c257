// Element types and reductions of the emulated NCCL.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator::nccl {

std::size_t nccl_element_bytes(ncclDataType_t type);  // 0: no such type
std::string nccl_type_name(ncclDataType_t type);      // "bfloat16"
std::string nccl_reduction_name(ncclRedOp_t operation);

// True for the types that can be reduced (all but the 8-bit floats).
bool is_reducible(ncclDataType_t type);

// accumulator(n) = first contribution, or accumulator op contribution. Called for the contributions of ranks 0, 1, 2,
// .. in this order, so results do not depend on who arrives first. 16-bit floats are rounded after each step, as a ring
// does; ncclAvg multiplies every contribution of `ranks` ranks by 1 / ranks before it is added (floats), or divides the
// sum at the end (finish_reduction, integers), as NCCL does.
void start_reduction(void* accumulator, const void* contribution, std::size_t n, ncclDataType_t type,
                     ncclRedOp_t operation, int ranks);
void reduce(void* accumulator, const void* contribution, std::size_t n, ncclDataType_t type, ncclRedOp_t operation,
            int ranks);
void finish_reduction(void* accumulator, std::size_t n, ncclDataType_t type, ncclRedOp_t operation, int ranks);

}  // namespace emulator::nccl

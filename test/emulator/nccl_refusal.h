// The emulated NCCL's words when it refuses a call.
#pragma once

#include <nccl.h>

#include <string>

namespace emulator::nccl {

// Says on stderr what was asked and what would be right, remembers it (ncclGetLastError), lets the group under way
// fail, and gives back `result`.
ncclResult_t refuse(ncclResult_t result, const std::string& call, const std::string& rule);
const std::string& last_nccl_refusal();

}  // namespace emulator::nccl

// The program's calls of the runtime so far. A test notes counters() and compares later: no host synchronisation, no
// allocation and no communicator after the first step, for example.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace emulator {

struct Counters {
  std::int64_t host_synchronisations = 0;  // calls that made the host wait for the device, whether or not it had to
  std::int64_t allocations = 0;            // device and pinned host memory
  std::int64_t frees = 0;
  std::int64_t launches = 0;
  std::int64_t copies = 0;  // and fills
  std::int64_t streams_created = 0;
  std::int64_t events_created = 0;
  std::int64_t communicators_created = 0;  // by the emulated NCCL
  std::int64_t library_calls = 0;          // cuBLAS and NCCL operations
};
Counters& counters();

// Shared memory accesses of one kernel, counted in race builds with EMULATOR_BANKS=1: per warp and instruction, as the
// hardware splits them (32 banks of 4 bytes; 8-byte accesses by half warps, 16-byte accesses by quarter warps).
// Neighbouring accesses of one thread that a compiler would join into a vector are joined. `conflicts` is the number of
// passes beyond the necessary ones.
struct BankUse {
  std::int64_t passes = 0;
  std::int64_t conflicts = 0;
};
std::map<std::string, BankUse>& bank_use();  // by kernel name, as written at the launch

}  // namespace emulator

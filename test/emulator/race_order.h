// The race detector's knowledge of order: stretches of execution, and which are over before others begin.
#pragma once

#if defined(EMULATOR_RACE)

#include <cstdint>
#include <string>

namespace emulator::race {

struct OperationInfo {
  std::uint64_t stream;
  std::uint32_t sequence;
  std::string what;
};

// A stretch of one thread's execution between synchronisations. Everything in it is ordered alike.
struct Segment {
  std::uint64_t block_serial;  // 0: not in a kernel
  std::uint32_t operation;     // in `operations`
  std::uint32_t block;         // linear index, for reports
  std::uint32_t barrier_epoch;
  std::uint32_t lane_clock;
  std::uint16_t thread;
};

extern bool in_operation;  // false: host code between operations

// Segments have numbers from 1 that are never used twice. Those that the detector has forgotten, because everything was
// complete since, are ordered before all that can still run.
bool is_forgotten(std::uint32_t number);
const Segment& segment(std::uint32_t number);
const OperationInfo& operation_of(const Segment& segment);
const OperationInfo& running_operation();
bool is_running_operation(const Segment& segment);

// The segment of the running thread, or of the running operation outside kernels.
std::uint32_t current_segment();
// Whether everything in the segment is over before what the running thread (or operation, or host code) does now.
bool ordered(std::uint32_t number);
// The running thread counts atomically at this address: it sees what other blocks wrote before they fenced and counted
// there.
void exchange_knowledge(const void* counter);

}  // namespace emulator::race

#endif

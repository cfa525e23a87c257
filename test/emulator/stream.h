// Streams are deferred queues: a call on a stream only appends an operation, and operations run while the host is in a
// call that waits (or asks). Which stream advances first is chosen by Settings::stream_order, so a dependency that the
// program forgot shows as a wrong result or a report instead of working by luck.
//
// Libraries emulated on top (cuBLAS, NCCL) use enqueue() and, when they block the host themselves, drive_until().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace emulator {

// Appends an operation to `stream` (nullptr: the legacy default stream, with its implicit ordering). It starts when
// everything before it in the stream is done. From then on `poll` is called, with device memory accessible, until it
// returns true: it must not block and must not call the CUDA runtime. `what` names it in reports: library, call, sizes,
// peer, e.g. "ncclRecv(4096 x bfloat16 from 1)". Throws nothing; an unknown stream is reported and ends the process.
void enqueue(cudaStream_t stream, std::string what, std::function<bool()> poll);
// Likewise, for an operation that waits for other ranks (first_use.h).
void enqueue_message(cudaStream_t stream, std::string what, std::function<bool()> poll);

// Lets streams advance as far as they can without waiting. True if at least one operation finished. To be called by
// whoever blocks the host outside the CUDA runtime (the MPI interposer): a GPU keeps running meanwhile.
bool drive();

// Drives until `done` (asked between the operations), napping when nothing moves. `what` says what the host waits for.
// When nothing has moved for Settings::watchdog_seconds, or nothing ever can, reports every stuck stream and ends the
// process.
void drive_until(const std::function<bool()>& done, std::string_view what);

// Operations of this process that are done: grows while anything moves.
std::uint64_t operations_finished();

// The name of what drive_until waits for at present; empty: the host does not wait.
std::string_view host_waits_in();

// One line per stream that still has operations: its number, the operation at its head and for how long it has been
// there, and how many wait behind it. Empty when all is done.
std::string describe_streams();

// True if `stream` has nothing left to run.
bool stream_is_idle(cudaStream_t stream);

// Number of the stream in reports (0: the default stream).
std::uint64_t stream_number(cudaStream_t stream);

}  // namespace emulator

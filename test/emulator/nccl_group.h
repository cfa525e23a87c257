// Groups and launches. Calls between ncclGroupStart and ncclGroupEnd (a call alone is a group of one) are launched
// together: per communicator one batch, in the order of first calls. A batch starts when everything before it on every
// stream it uses is done and the communicator's earlier batches are; its calls progress together, and all its streams
// go on when all its calls are done. (NCCL fuses them into one kernel.)
//
// Before the first use of a pair of ranks (and before a communicator's first collective) NCCL connects them, and blocks
// the host of the one until the other comes to the same point: ncclGroupEnd returns late, and hosts that first use
// several communicators in different orders deadlock. Emulated likewise, unless EMULATOR_NCCL_LAZY_CONNECT=0.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>

#include "nccl_call.h"

namespace emulator::nccl {

struct Batch {
  ncclComm* communicator = nullptr;
  std::vector<std::unique_ptr<Call>> calls;  // in order of issue
  std::vector<cudaStream_t> streams;
  std::vector<bool> reached;  // by stream: everything before the batch is done
  bool runs = false;          // and holds multiprocessors
  bool done = false;
};

void group_start();
// ncclInvalidUsage without a start. The first error of a call inside the group is that of the group.
ncclResult_t group_end();
bool in_group();
// A checked call: launched now, or at the end of the group.
ncclResult_t add_call(std::unique_ptr<Call> call);
// A communicator whose creation has begun: finished now (or at the end of the group), or left in progress where it is
// not blocking.
ncclResult_t add_creation(ncclComm_t* handle);

// Moves what a non-blocking communicator still has to do before its calls are launched. True when nothing is left.
bool advance_launches(const ncclComm* communicator);
// Forgets what a communicator has in flight; its streams go on.
void abandon_batches(ncclComm& communicator);

// One line per unfinished call of this process, with what it waits for.
std::string describe_calls();

}  // namespace emulator::nccl

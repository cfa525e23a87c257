// Ranks as threads of one process: for tests, for ThreadSanitizer, and for sweeping hundreds of cases quickly. Messages
// have rendezvous semantics (a send is done when its receive has the data), the strictest that MPI allows.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/communicator.h"

namespace train_gpt {

// One communicator per rank; each is used by one thread.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks);

// Runs body(communicator) on `ranks` threads and returns when all have ended. The first exception of a rank ends the
// waits of the others (they throw std::runtime_error) and is thrown again here.
void run_local_ranks(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace train_gpt

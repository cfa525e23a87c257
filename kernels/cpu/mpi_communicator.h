// MPI between ranks without GPUs. Only the thread that created the communicator calls MPI (MPI_THREAD_FUNNELED). No
// call blocks inside MPI: MPICH's waiting calls spin at full speed and take the core away from a rank that computes.
#pragma once

#include <memory>
#include <vector>

#include "kernels/communicator.h"

namespace train_gpt {

struct MpiOptions {
  bool synchronous_sends = false;  // every send waits for its receive (rendezvous), to expose hidden deadlocks
  std::int64_t largest_message = std::int64_t{1} << 30;  // longer messages travel in pieces: MPI counts are ints
};

// MPI_Init .. MPI_Finalize as a scope. Detects n processes that were started as n copies of "rank 0 of 1" (launcher and
// library from two MPIs) and throws std::invalid_argument saying so.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};

// All ranks of the job; requires a live MpiSession.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options = {});

// Ranks of this job that run on the same host as this one, and this rank's place among them.
struct HostPlace {
  int ranks = 1;
  int index = 0;
  std::vector<int> members;  // their ranks in the job
};
HostPlace host_place();

}  // namespace train_gpt

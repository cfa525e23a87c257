// Communicators of the emulated NCCL, and how they come to be.
//
// Creation is a meeting: every rank says hello to one collecting rank (the one that made the unique id; rank 0 of the
// parent for a split), which checks what they said (same size, each rank once, no GPU twice), draws the groups and
// answers each with its communicator's context number and members. The collecting rank need not itself be in the call
// at that time: it answers whenever it is inside the emulated device, NCCL or MPI.
#pragma once

#include <nccl.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nccl_message.h"

namespace emulator::nccl {

struct Batch;
class Meeting;

enum class CommunicatorState : std::uint8_t { creating, ready, failed, finalizing, finalized, aborted };

}  // namespace emulator::nccl

// NVIDIA's name for the opaque type.
struct ncclComm {
  std::string name;  // ncclConfig_t::commName, or "communicator 12"
  int context = 0;
  int rank = 0;
  int device = 0;
  std::vector<int> world_ranks;  // of its members
  bool blocking = true;
  int ctas =
      16;  // ncclConfig_t::maxCTAs: multiprocessors that one of its kernels may hold; unset: as NCCL likes on NVLink
  emulator::nccl::CommunicatorState state = emulator::nccl::CommunicatorState::creating;
  ncclResult_t asynchronous_error = ncclSuccess;
  std::unique_ptr<emulator::nccl::Meeting> meeting;  // while creating

  std::uint64_t calls = 0;                                       // so far
  std::uint64_t splits = 0;                                      // so far
  std::deque<std::shared_ptr<emulator::nccl::Batch>> batches;    // launched and not done, in order of issue
  std::vector<bool> connected_as_sender, connected_as_receiver;  // by peer
  bool connected_for_collectives = false;

  // Operations that wait for a message of one peer and channel, in order of issue: the first takes the next message.
  std::map<std::pair<int, emulator::nccl::Channel>, std::deque<const void*>> receivers;

  int size() const { return static_cast<int>(world_ranks.size()); }
  std::string describe() const;  // "communicator 12, rank 1 of 4"
};

namespace emulator::nccl {

// One rank's part in a meeting. `expected` ranks are to come; those of one color meet.
struct Hello {
  std::uint64_t key[2] = {};  // which meeting
  std::int32_t expected = 0;
  std::int32_t rank = 0;   // in the meeting
  std::int32_t color = 0;  // NCCL_SPLIT_NOCOLOR: in no group
  std::int32_t order = 0;  // within the color; equal: by rank
  std::int32_t world_rank = 0;
  char gpu[108] = {};  // which GPU it uses: host and number
};

// The caller's side, to be polled.
class Meeting {
 public:
  Meeting(int collecting_rank, const Hello& hello);
  // True when the answer is there; then it is in the members.
  bool done();

  std::string error;  // empty: success
  int context = 0;
  int rank = -1;  // -1: no group
  std::vector<int> world_ranks;

 private:
  std::array<std::uint64_t, 2> key_;
  MessageOut hello_;
  bool answered_ = false;
};

// The collecting rank's side: takes part in the meetings that it collects, as far as it can now.
void serve_meetings();

// Starts creating; on return `communicator` is in state creating.
ncclComm_t begin_communicator(const ncclUniqueId& id, int ranks, int rank, const ncclConfig_t* config);
// Null new communicator, no meeting: color is NCCL_SPLIT_NOCOLOR, but the meeting still has to be driven by the result.
ncclComm_t begin_split(ncclComm& parent, int color, int key, const ncclConfig_t* config);
// Moves a communicator that is being created. True when it is ready or failed.
bool advance_creation(ncclComm& communicator);

// The fault in the configuration, or "".
std::string check_config(const ncclConfig_t& config);

const std::vector<ncclComm_t>& live_communicators();
bool is_live(const ncclComm* communicator);
void forget(ncclComm* communicator);  // destroys

// "host7:GPU 3": EMULATOR_HOST or the host's name, and the physical number behind the current device, by
// CUDA_VISIBLE_DEVICES.
std::string gpu_identity();

}  // namespace emulator::nccl

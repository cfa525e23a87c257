// Messages of the emulated NCCL: staged in host memory (MPI must not touch device memory, which is closed while host
// code runs), each with a header in front that says which operation it belongs to, so that both ends can compare.
//
// Ranks here are ranks of MPI_COMM_WORLD; everything travels on a private duplicate of it. A communicator owns a
// context number that no other communicator of any of its ranks has; context and channel make the MPI tag.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulator::nccl {

enum class Channel : int {
  to_receiver,      // ncclSend -> ncclRecv: header and data
  to_sender,        // ncclRecv -> ncclSend: header
  collective,       // both ways between ranks of a collective
  sender_connects,  // first use of a pair of ranks
  receiver_connects,
  everyone_connects,  // first collective
  hello,              // creation of communicators: a rank to the rank that collects
  welcome,            // and back
};

struct Header {
  std::int32_t kind = 0;
  std::int32_t type = 0;
  std::int32_t reduction = -1;
  std::int32_t root = -1;
  std::uint64_t count = 0;
  std::uint64_t sequence = 0;  // of the call on its communicator
  std::uint64_t payload_bytes = 0;
};

// The duplicate of MPI_COMM_WORLD, this process's rank in it, and its size. MPI must be initialised.
MPI_Comm private_world();
bool mpi_is_running();
int world_rank();
int world_size();
// From the interposed MPI_Init and MPI_Finalize.
void open_private_world();
void close_private_world();

// A message on its way out: done when the receiver has matched it (MPI_Issend).
class MessageOut {
 public:
  MessageOut(int destination, int context, Channel channel, const Header& header, const void* payload,
             std::size_t bytes);
  MessageOut(MessageOut&&) = default;
  MessageOut& operator=(MessageOut&&) = default;
  bool done();
  void abandon();  // after ncclCommAbort: the buffer outlives the request
  const char* payload() const { return bytes_.data() + sizeof(Header); }
  std::size_t payload_bytes() const { return bytes_.size() - sizeof(Header); }

 private:
  std::vector<char> bytes_;
  std::vector<MPI_Request> requests_;
};

// The next message from `source` on a channel, of whatever size: its header decides whether it is the expected one.
class MessageIn {
 public:
  MessageIn(int source, int context, Channel channel);
  bool done();
  void abandon();
  int source() const { return source_; }
  const Header& header() const { return header_; }
  const char* payload() const { return bytes_.data() + sizeof(Header); }

 private:
  int source_;
  int tag_;
  bool matched_ = false;
  bool done_ = false;
  Header header_;
  std::vector<char> bytes_;
  std::vector<MPI_Request> requests_;
};

}  // namespace emulator::nccl

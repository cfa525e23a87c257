// One NCCL call (a send, a receive, a collective) on its way: its messages, and its data in and out of device memory.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "nccl_communicator.h"
#include "nccl_message.h"

namespace emulator::nccl {

enum class CallKind : std::int32_t { send, receive, all_reduce, reduce_scatter, all_gather, broadcast, reduce };
bool is_collective(CallKind kind);

class Call {
 public:
  CallKind kind = CallKind::send;
  const void* send_buffer = nullptr;
  void* receive_buffer = nullptr;
  std::size_t count = 0;  // as in NCCL's prototypes: what one rank receives by ncclReduceScatter, or sends by
                          // ncclAllGather
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int root = -1;  // or the peer
  ncclComm* communicator = nullptr;
  cudaStream_t stream = nullptr;
  std::uint64_t sequence = 0;  // on its communicator

  // "ncclRecv(4096 x bfloat16 from rank 1) #7"
  std::string describe() const;
  // The same without its number.
  std::string describe_kind() const;
  // Bytes read and written.
  std::size_t send_bytes() const;
  std::size_t receive_bytes() const;

  // Inside a stream operation. start() posts the messages; advance() moves them and gives true when the call is done.
  void start();
  bool advance();
  bool started() const { return started_; }
  bool done() const { return done_; }
  void abandon();
  // "rank 3 (its header has not arrived)": whom it waits for.
  std::string waits_for() const;

 private:
  int rank() const { return communicator->rank; }
  int ranks() const { return communicator->size(); }
  std::size_t element() const;
  Header header() const;
  Channel outgoing() const;
  Channel incoming() const;
  void send_to(int peer, const void* data, std::size_t bytes);
  void expect_from(int peer);
  bool messages_done();
  void check_header(const MessageIn& message);

  struct Piece {
    std::size_t begin, count;
  };
  Piece piece(int owner) const;  // of a reduction, in elements
  void stage();
  void poison();
  void start_phase();
  void finish_phase();
  void exchange_contributions();
  void reduce_my_piece();
  void deliver(std::size_t offset, const void* data, std::size_t bytes);
  void check_send_buffer();
  bool in_place() const;

  bool started_ = false;
  bool done_ = false;
  int phase_ = 0;
  std::vector<char> staged_;       // what was in the send buffer at the start
  std::vector<char> accumulator_;  // of reductions
  std::list<MessageOut> out_;
  std::list<MessageIn> in_;  // in order of rank
};

}  // namespace emulator::nccl

// First uses: see nccl_group.h.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "nccl_call.h"
#include "nccl_message.h"

namespace emulator::nccl {

// One rank's side of becoming connected with one other.
class Connection {
 public:
  Connection(int world_rank, int context, Channel outgoing, Channel incoming);
  bool done();

 private:
  MessageOut out_;
  MessageIn in_;
};

// The connections that these calls use for the first time; marks them as used.
std::list<Connection> connect_for(const std::vector<std::unique_ptr<Call>>& calls);

}  // namespace emulator::nccl

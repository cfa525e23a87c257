#include "nccl_connect.h"

#include <cstdlib>
#include <cstring>

namespace emulator::nccl {
namespace {

bool connects_lazily() {
  const char* setting = std::getenv("EMULATOR_NCCL_LAZY_CONNECT");
  return setting == nullptr || std::strcmp(setting, "0") != 0;
}

void connect_pair(std::list<Connection>& connections, const Call& call) {
  ncclComm& communicator = *call.communicator;
  const auto peer = static_cast<std::size_t>(call.root);
  const bool sends = call.kind == CallKind::send;
  std::vector<bool>& connected = sends ? communicator.connected_as_sender : communicator.connected_as_receiver;
  if (connected[peer]) return;
  connected[peer] = true;
  if (call.root == communicator.rank) return;
  connections.emplace_back(communicator.world_ranks[peer], communicator.context,
                           sends ? Channel::sender_connects : Channel::receiver_connects,
                           sends ? Channel::receiver_connects : Channel::sender_connects);
}

void connect_everyone(std::list<Connection>& connections, ncclComm& communicator) {
  if (communicator.connected_for_collectives) return;
  communicator.connected_for_collectives = true;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank) continue;
    connections.emplace_back(communicator.world_ranks[static_cast<std::size_t>(peer)], communicator.context,
                             Channel::everyone_connects, Channel::everyone_connects);
  }
}

}  // namespace

Connection::Connection(int world_rank, int context, Channel outgoing, Channel incoming)
    : out_(world_rank, context, outgoing, {}, nullptr, 0), in_(world_rank, context, incoming) {}

bool Connection::done() {
  const bool arrived = in_.done();
  return out_.done() && arrived;
}

std::list<Connection> connect_for(const std::vector<std::unique_ptr<Call>>& calls) {
  std::list<Connection> connections;
  if (!connects_lazily()) return connections;
  for (const auto& call : calls) {
    if (is_collective(call->kind)) {
      connect_everyone(connections, *call->communicator);
    } else {
      connect_pair(connections, *call);
    }
  }
  return connections;
}

}  // namespace emulator::nccl

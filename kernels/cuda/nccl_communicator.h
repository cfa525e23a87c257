// NCCL between GPUs. Messages and collectives are enqueued, never waited for: await() makes the compute stream wait.
// Every channel has a two-rank communicator and a stream of its own, on which one side only sends and the other only
// receives, so that a receive whose peer is late never holds up a send, and next and previous may be the same rank.
//
// All communicators are made in open_channels() and open_collectives(), in one order on all ranks, and used once there:
// NCCL connects two ranks at their first operation and blocks both hosts meanwhile.
//
// Small data (plans, norms, losses, errors) goes through the communicator of the host that this one wraps.
#pragma once

#include <memory>

#include "kernels/communicator.h"
#include "kernels/device.h"

namespace train_gpt {

// Takes over `host`, whose ranks drive different GPUs. The cuda device outlives the communicator and those split from
// it.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, const Device& device);

}  // namespace train_gpt

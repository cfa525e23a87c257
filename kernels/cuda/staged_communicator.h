// Messages and collectives between ranks that share GPUs, which NCCL refuses: device memory is copied to pinned host
// memory, travels by the communicator of the host, and is copied back. The host takes part in every message, so it
// waits in await() for what it has to receive, and for its peer to take what it has sent. Meant for trying several
// ranks on one GPU, not for speed.
//
// Pinned memory: one buffer per slot of a channel, and one of the size of the largest collective, all of them made when
// channels and collectives are opened.
#pragma once

#include <memory>

#include "kernels/communicator.h"
#include "kernels/device.h"

namespace train_gpt {

// Takes over `host`. The cuda device outlives the communicator and those split from it.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host, const Device& device);

}  // namespace train_gpt

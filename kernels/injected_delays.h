// Random delays of messages and actions, which show that no result depends on timing and no schedule hangs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "kernels/communicator.h"

namespace train_gpt {

// --inject-delay SPEC: comma-separated KEY=VALUE with
//   message=MS   every message leaves up to MS milliseconds late
//   receive=MS   every receive is posted up to MS milliseconds late
//   action=MS    every action starts up to MS milliseconds late
//   step=MS      every action takes MS milliseconds longer (a slow rank)
//   latency=MS   every message leaves MS milliseconds late (a slow link)
//   bandwidth=X  messages of a channel follow each other at X GB/s (10^9 bytes)
//   rank=R       only on this rank (default: all)
//   seed=N       of the random numbers (default 1)
struct DelaySpec {
  double message = 0;
  double receive = 0;
  double action = 0;
  double step = 0;
  double latency = 0;
  double bandwidth = 0;  // 0: infinite
  // The extra time of a message between two ranks of a communicator of this size; empty: none. Not part of SPEC: on the
  // timed device --cost-comm and --cost-bandwidth describe the links.
  struct Link {
    double latency = 0;
    double bandwidth = 0;
  };
  std::function<Link(int source, int destination, int ranks)> link = nullptr;
  int rank = -1;
  std::uint64_t seed = 1;
};

// Throws std::invalid_argument naming --inject-delay, the part that is wrong and what would be right.
DelaySpec parse_delays(const std::string& spec);

// Passes everything on to `inner`, sends and receives after a random delay. (The executor delays actions.)
std::unique_ptr<Communicator> inject_delays(std::unique_ptr<Communicator> inner, const DelaySpec& spec);

}  // namespace train_gpt

// The ordered connections between ranks over which messages travel.
#pragma once

#include <compare>
#include <cstdint>

namespace train_gpt {

// A channel is one ordered FIFO between two ranks: activations or gradients. Its message order is the producer's action
// order. One FIFO per pair of ranks would not be enough: ZB-V, DualPipe and others consume the two kinds in another
// order than that of their sends.
struct Channel {
  enum class Kind : std::uint8_t { activation, gradient };
  int source = 0;
  int destination = 0;
  Kind kind = Kind::activation;

  auto operator<=>(const Channel&) const = default;
};

}  // namespace train_gpt

// How messages and products share the multiprocessors of a GPU.
//
// A kernel of NCCL spins in its CTAs (blocks) until its peer is there, each on a multiprocessor that does nothing else.
// A persistent matrix product that expects all multiprocessors and misses a few runs a second wave, and takes up to
// twice as long. So messages get few CTAs, and products are told what is left - always the same number, also where no
// message waits: cuBLASLt's choice of an algorithm, and with it the bits, may depend on it.
#pragma once

namespace train_gpt::cuda {

// CTAs of a channel's communicator: one CTA moves some 20 GB/s over NVLink, 26 MB (8 x 1024 tokens of GPT-2 1558M) in
// the time of half a layer's forward.
inline constexpr int kChannelCtas = 1;
// CTAs of a communicator of collectives. While products run there are at most two, that of a tied embedding and that of
// the replicas.
inline constexpr int kCollectiveCtas = 2;

// Multiprocessors that products leave to messages. No rank ends more than 8 channels (those of V-shaped and
// bidirectional placements: two neighbours, two directions, activations and gradients); ranks that sum a tied
// embedding's gradient with another end at most 4. Replicas of a rank with more than 4 may take more than is left.
inline constexpr int kLeftToMessages = 8;

}  // namespace train_gpt::cuda

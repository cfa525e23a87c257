// One long text shared among threads, with the result of one thread.
//
// Where a pattern cuts depends on its last cut, so only the first thread knows where to begin. Every other thread
// begins at a guess, the start of a line; the thread before it goes on past that place until one of its cuts falls on
// one of the other's. From there on both cut alike, and earlier cuts after the guess are dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "data/learn_merges.h"
#include "data/tokenizer.h"

namespace train_gpt {

// The part that one thread cuts at a time.
inline constexpr std::size_t kSegmentBytes = std::size_t{1} << 20;

// Encodes `text` with one thread per encoder. `take` gets the ids in order and the number of their bytes, for about a
// megabyte of text at a time, so that memory does not grow with the text.
void encode_long_text(std::string_view text, std::span<Encoder> encoders,
                      const std::function<void(std::span<const std::int32_t>, std::size_t)>& take,
                      std::size_t segment_bytes = kSegmentBytes);

void count_pieces(std::string_view text, Encoder& encoder, PieceCounts& counts);

// Counts the pieces of a long text, thread i into counts[i].
void count_long_text(std::string_view text, std::span<Encoder> encoders, std::span<PieceCounts> counts,
                     std::size_t segment_bytes = kSegmentBytes);

}  // namespace train_gpt

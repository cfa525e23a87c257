// Colours of pipeline pictures: the hue is the micro-batch, the lightness is the operation.
#pragma once

#include <string>

namespace train_gpt {

struct BarColor {
  std::string fill;  // #rrggbb
  std::string text;  // readable on it
};

// `letter` as in TimelineBar. Neighbouring micro-batches get hues far apart; micro_batch < 0 is grey.
BarColor bar_color(char letter, int micro_batch);

// The colour that marks the chunk-th virtual stage of a rank, chunk > 0.
std::string chunk_color(int chunk, int chunks);

}  // namespace train_gpt

// The generators of the names in pipeline/schedule/catalog.h: one file pipeline/schedule/<name>.cpp per family. They
// expect legal values.
#pragma once

#include "pipeline/schedule/list_builder.h"

namespace train_gpt {

Schedule gpipe(int p, int m);
Schedule one_f_one_b(int p, int m);
Schedule interleaved(int p, int m, int v, int g);
Schedule breadth_first(int p, int m, int v);
Schedule zb_h1(int p, int m);
Schedule zb_h2(int p, int m);
Schedule interleaved_zb(int p, int m, int v, int g);
Schedule zb_v(int p, int m);
Schedule one_f_one_b_v(int p, int m);
Schedule v_half(int p, int m);
Schedule v_min(int p, int m);
Schedule dualpipe(int p, int m);
Schedule dualpipev(int p, int m);
// Of so many steps from fill to drain (flushless.h); w forwards ahead for each rank that follows.
Schedule two_buffered_weights(int p, int m, int w, int steps);
Schedule pipedream(int p, int m, int steps);

}  // namespace train_gpt

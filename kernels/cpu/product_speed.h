// The rate that matrix products reach on this machine, for the line that a run prints about its resources.
#pragma once

namespace train_gpt::cpu {

// GFLOP/s (10^9 operations per second) of one core.
struct ProductSpeed {
  double reached = 0;  // by a product that lies in the cache
  double peak = 0;     // the processor's fused multiply-adds, with the widest vectors that it has
};

// Takes a few milliseconds.
ProductSpeed measure_product_speed();

}  // namespace train_gpt::cpu

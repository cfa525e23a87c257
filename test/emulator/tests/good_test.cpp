// Known-good device and host code: right results and no report, in every order and build.
#include "good.h"

#include <cstdio>
#include <cstdlib>

void demand(bool right, const char* what, const char* file, int line) {
  if (right) return;
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  std::exit(1);
}

int main() {
  warp_operations();
  tensor_core_fragments();
  shared_memory();
  block_shapes_and_atomics();
  memory_calls();
  stream_order();
  staging_ring();
  event_queries();
  syntax();
  bank_conflicts();
  counters_and_properties();
  std::printf("known-good code: clean\n");
}

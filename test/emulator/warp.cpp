#include "warp.h"

#include "report.h"
#include "sites.h"

namespace emulator {

unsigned shuffle_source(ShuffleKind kind, unsigned operand, int width, Where where) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    fail("warp-mask",
         "shuffle at " + text(where) + " with width " + std::to_string(width) + ": a power of 2 up to 32 is right");
  }
  const unsigned lane = current_thread->lane;
  const unsigned size = static_cast<unsigned>(width);
  const unsigned begin = lane & ~(size - 1);
  switch (kind) {
    case ShuffleKind::index:
      return begin + (operand & (size - 1));
    case ShuffleKind::up:
      return lane >= begin + operand ? lane - operand : lane;
    case ShuffleKind::down:
      return lane + operand < begin + size ? lane + operand : lane;
    case ShuffleKind::bits:
      break;
  }
  // Lanes beyond the own segment are not read; those before it are (PTX ISA).
  const unsigned source = lane ^ operand;
  return source < begin + size ? source : lane;
}

void exchange(const char* name, unsigned mask, Shuffle& shuffle, Where where) {
  warp_operation(
      name, mask, &shuffle,
      [](void* const* arguments, unsigned lanes) {
        for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
          auto* reader = static_cast<Shuffle*>(arguments[__builtin_ctz(rest)]);
          const auto* offered = static_cast<const Shuffle*>(arguments[reader->source]);
          if (offered == nullptr || (lanes >> reader->source & 1U) == 0) {
            fail("absent-lanes", "lane " + std::to_string(__builtin_ctz(rest)) + " reads lane " +
                                     std::to_string(reader->source) + ", which takes no part in the shuffle");
          }
          reader->result = offered->value;
        }
      },
      where);
}

std::uint64_t vote(const char* name, unsigned mask, std::uint64_t value, WarpFunction run, Where where) {
  Vote call{value, 0};
  warp_operation(name, mask, &call, run, where);
  return call.result;
}

void vote_ballot(void* const* arguments, unsigned mask) {
  std::uint64_t ballot = 0;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    if (static_cast<const Vote*>(arguments[lane])->value != 0) ballot |= std::uint64_t{1} << lane;
  }
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    static_cast<Vote*>(arguments[__builtin_ctz(rest)])->result = ballot;
  }
}

void vote_match_any(void* const* arguments, unsigned mask) {
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    auto* mine = static_cast<Vote*>(arguments[__builtin_ctz(rest)]);
    for (unsigned others = mask; others != 0; others &= others - 1) {
      const int lane = __builtin_ctz(others);
      if (static_cast<const Vote*>(arguments[lane])->value == mine->value) mine->result |= std::uint64_t{1} << lane;
    }
  }
}

// Only __syncwarp orders memory: shuffles and votes do not (CUDA programming guide).
void synchronise_lanes(unsigned mask, Where where) {
  if (left_out("__syncwarp", where)) return;
  warp_operation(
      "__syncwarp", mask, nullptr, [](void* const*, unsigned lanes) { race::lanes_synchronised(lanes); }, where);
}

void nap(Where where) {
  require_device_code("__nanosleep", where);
  fail("spin", "__nanosleep at " + text(where) +
                   ": the thread waits for what another has not written yet, and no other runs before it ends or comes "
                   "to a barrier; a block may wait for one only that has started before it (a ticket says which)");
}

}  // namespace emulator

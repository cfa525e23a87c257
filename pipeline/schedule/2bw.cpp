// PipeDream-2BW (Narayanan et al. 2021), without a flush: rank r runs w(p-1-r) warm-up forwards once, then one forward
// and one backward in turn, across the ends of steps, and the remaining backwards when the pipe is drained.
//
//   p = 3, m = 2, two steps (micro-batches 0 1 and 2 3), backward twice as long as forward
//   rank 0 | F0 F1 F2 .  .  .  .  B0 -- F3 B1 -- .  B2 -- .  B3 --
//   rank 1 | .  F0 F1 .  .  B0 -- F2 B1 -- F3 B2 -- .  B3 --
//   rank 2 | .  .  F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 --
//
// Forwards and backwards of step t compute with the parameters that step t-2 left (t < 2: with the first ones), so two
// buffers of parameters suffice, and the delay is one step whatever p is. There is no bubble but that of fill and
// drain; at most w(p-1-r)+1 activations live on rank r. m >= w(p-1): the forwards ahead reach into the next step, never
// further.
//
// A forward and the backward of what it feeds travel the pipe in (p-1-r) hops each way. With w = 1 a rank waits for
// them as soon as hops cost time; w = 2 keeps twice as many forwards between them.
#include <algorithm>
#include <stdexcept>

#include "pipeline/schedule/flushless.h"
#include "pipeline/schedule/generators.h"

namespace train_gpt {
namespace {

Schedule two_buffered_weights(int p, int m, int w, int steps) {
  const int all = m * steps;
  Schedule schedule(Placement::loop(p, /*v=*/1, all), all);
  for (int r = 0; r < p; ++r) {
    const int ahead = std::min(w * (p - 1 - r), all);
    for (int i = 0; i < ahead; ++i) schedule.rank(r).forward(r, i);
    for (int i = ahead; i < all; ++i) schedule.rank(r).forward(r, i).backward(r, i - ahead);
    for (int i = all - ahead; i < all; ++i) schedule.rank(r).backward(r, i);
  }
  schedule.steps = steps;
  return schedule;
}

}  // namespace

const std::vector<std::string>& flushless_names() {
  static const std::vector<std::string> names = {"2bw"};
  return names;
}

bool is_flushless(const std::string& name) { return std::ranges::count(flushless_names(), name) > 0; }

std::optional<std::string> violation(const FlushlessRequest& request) {
  constexpr std::int64_t kMostPasses = std::int64_t{1} << 28;  // as pipeline/schedule/catalog.cpp
  const std::int64_t p = request.ranks, m = request.micro_batches, least = request.warmup_factor * (p - 1);
  if (p < 1) return "--stages " + std::to_string(p) + ": a pipeline needs at least 1 stage";
  if (m < std::max<std::int64_t>(1, least)) {
    return "--micro-batches " + std::to_string(m) + ": schedule " + request.name + " at " + std::to_string(p) +
           " stages" + (request.warmup_factor > 1 ? " with --warmup-factor 2" : "") + " needs at least " +
           std::to_string(std::max<std::int64_t>(1, least));
  }
  if (p > kMostPasses / m || p * m > kMostPasses / request.steps) {
    return "schedule " + request.name + " with " + std::to_string(p) + " stages, " + std::to_string(m) +
           " micro-batches and " + std::to_string(request.steps) +
           " steps is too large: their product may be at most " + std::to_string(kMostPasses);
  }
  return std::nullopt;
}

Schedule make_schedule(const FlushlessRequest& request) {
  if (auto text = violation(request)) throw std::invalid_argument(*text);
  Schedule schedule = two_buffered_weights(request.ranks, request.micro_batches, request.warmup_factor, request.steps);
  schedule.name = request.name;
  return schedule;
}

}  // namespace train_gpt

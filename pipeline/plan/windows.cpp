#include "pipeline/plan/windows.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "pipeline/plan/execution_plan.h"
#include "pipeline/plan/shards.h"

namespace train_gpt {
namespace {

// Actions [begin, end) of a list
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool meets(const Stretch& other) const { return begin < other.end && other.begin < end; }
};

using Conflicts = std::vector<std::vector<bool>>;

// Each at the lowest place that is free, in this order.
std::vector<std::int64_t> first_fit(const std::vector<std::int64_t>& sizes, const Conflicts& conflicts,
                                    const std::vector<std::size_t>& order) {
  std::vector<std::int64_t> places(sizes.size(), -1);
  for (const std::size_t one : order) {
    std::vector<std::size_t> taken;
    for (std::size_t other = 0; other < sizes.size(); ++other) {
      if (places[other] >= 0 && conflicts[one][other]) taken.push_back(other);
    }
    std::ranges::sort(taken, {}, [&](std::size_t other) { return places[other]; });
    std::int64_t place = 0;
    for (const std::size_t other : taken) {
      if (place + sizes[one] <= places[other]) break;
      place = std::max(place, places[other] + sizes[other]);
    }
    places[one] = place;
  }
  return places;
}

std::int64_t end_of(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& places) {
  std::int64_t end = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) end = std::max(end, places[i] + sizes[i]);
  return end;
}

// Moves the tensors of the sections, which take part where `takes_part` says so.
template <class TakesPart>
void place_sections(Windows& windows, const RankPlan& rank, const Conflicts& conflicts, const TakesPart& takes_part) {
  std::vector<std::int64_t> sizes;
  for (const Section& section : rank.sections) sizes.push_back(takes_part(section) ? section.elements : 0);
  windows.offsets = places_of(sizes, conflicts);
  windows.elements = end_of(sizes, windows.offsets);
  windows.layout = rank.layout;
  for (std::size_t i = 0; i < rank.sections.size(); ++i) {
    const Section& section = rank.sections[i];
    if (!takes_part(section)) continue;
    for (const int index : section.entries) {
      ArenaLayout::Entry& entry = windows.layout.entries[static_cast<std::size_t>(index)];
      std::int64_t& place = section.has_parameters ? entry.offset : entry.head_gradient;
      place += windows.offsets[i] - section.offset;
    }
  }
  windows.layout.elements = windows.layout.gradient_elements = windows.elements;
}

// ---- gradients ------------------------------------------------------------------------------------------------------

std::vector<Stretch> gradient_lives(const RankPlan& rank, const std::vector<Action>& list, bool hides_reductions) {
  std::vector<Stretch> lives;
  for (const Section& section : rank.sections) {
    const bool streams = rank.stage_plan(section.stage).shape.streams_head();
    const auto first = std::ranges::find_if(list, [&](const Action& action) {
      return action.stage == section.stage &&
             (streams || action.op == Op::backward || action.op == Op::backward_weight);
    });
    lives.push_back({static_cast<std::size_t>(first - list.begin()), stage_complete(list, section.stage)});
  }
  if (!hides_reductions) return lives;
  // A reduction has time until the next stage is complete as well.
  std::vector<std::size_t> completions = {list.size()};
  for (const Stretch& life : lives) completions.push_back(life.end);
  for (Stretch& life : lives) {
    std::size_t next = list.size();
    for (const std::size_t other : completions) {
      if (other > life.end) next = std::min(next, other);
    }
    life.end = next;
  }
  return lives;
}

Conflicts conflicts_of(const std::vector<Stretch>& lives) {
  Conflicts conflicts(lives.size(), std::vector<bool>(lives.size(), false));
  for (std::size_t a = 0; a < lives.size(); ++a) {
    for (std::size_t b = 0; b < lives.size(); ++b) conflicts[a][b] = a != b && lives[a].meets(lives[b]);
  }
  return conflicts;
}

// A section's reduction must be done before another begins to use its place.
std::vector<std::size_t> until_used_again(const RankPlan& rank, const std::vector<std::int64_t>& offsets,
                                          const std::vector<Stretch>& lives, std::size_t end_of_list) {
  std::vector<std::size_t> until(lives.size(), end_of_list);
  for (std::size_t a = 0; a < lives.size(); ++a) {
    for (std::size_t b = 0; b < lives.size(); ++b) {
      const bool shares =
          offsets[a] < offsets[b] + rank.sections[b].elements && offsets[b] < offsets[a] + rank.sections[a].elements;
      if (a != b && shares && lives[b].begin >= lives[a].end) until[a] = std::min(until[a], lives[b].begin);
    }
  }
  return until;
}

// ---- parameters -----------------------------------------------------------------------------------------------------

// Whether an action reads parameters of a section; a head beside its tied embedding reads those of the embedding.
bool reads(const RankPlan& rank, const Section& section, const Action& action) {
  if (action.stage == section.stage) return true;
  return section.kind == Section::Kind::embedding && rank.stage_plan(action.stage).shape.has_shards();
}

// The runs of actions for which a section is whole.
std::vector<Stretch> runs_of(const RankPlan& rank, const Section& section, const std::vector<Action>& list,
                             bool per_use) {
  std::vector<Stretch> runs;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!reads(rank, section, list[i])) continue;
    const bool goes_on = !runs.empty() && (!per_use || runs.back().end == i);
    if (goes_on) runs.back().end = i + 1;
    if (!goes_on) runs.push_back({i, i + 1});
  }
  return runs;
}

// A run is gathered for while the run before it computes.
std::vector<Gathering> gatherings(const RankPlan& rank, const std::vector<Action>& list, bool per_use) {
  std::vector<Gathering> all;
  for (std::size_t i = 0; i < rank.sections.size(); ++i) {
    if (!rank.sections[i].has_parameters) continue;
    for (const Stretch& run : runs_of(rank, rank.sections[i], list, per_use)) {
      all.push_back({.section = static_cast<int>(i), .before = run.begin, .until = run.end});
    }
  }
  std::ranges::stable_sort(all, {}, &Gathering::before);
  std::vector<std::size_t> let_go(rank.sections.size(), 0);
  std::size_t run = 0, run_before = 0;  // where they begin
  for (Gathering& one : all) {
    if (one.before > run) run_before = std::exchange(run, one.before);
    std::size_t& own = let_go[static_cast<std::size_t>(one.section)];
    one.after = std::max(run_before, own);
    own = one.until;
  }
  std::ranges::stable_sort(all, {}, &Gathering::after);
  return all;
}

// Conflicts between gatherings, given in the order in which they are issued.
void add_conflicts(Conflicts& conflicts, const std::vector<Gathering>& all) {
  for (auto a = all.begin(); a != all.end(); ++a) {
    for (auto b = a + 1; b != all.end() && b->after < a->until; ++b) {
      const auto one = static_cast<std::size_t>(a->section), other = static_cast<std::size_t>(b->section);
      if (one != other) conflicts[one][other] = conflicts[other][one] = true;
    }
  }
}

}  // namespace

std::vector<std::int64_t> places_of(const std::vector<std::int64_t>& sizes, const Conflicts& conflicts) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::vector<std::int64_t> in_order = first_fit(sizes, conflicts, order);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return sizes[i]; });
  std::vector<std::int64_t> largest_first = first_fit(sizes, conflicts, order);
  return end_of(sizes, in_order) <= end_of(sizes, largest_first) ? in_order : largest_first;
}

std::optional<GradientWindows> gradient_windows(const PlanRequest& request, const RankPlan& rank,
                                                const std::vector<Action>& list) {
  // Mirrored ranks add their gradients first, each in its own time: all of them wait for the end.
  if (request.zero < 2 || request.batch.replicas == 1 || request.directions() == 2) return std::nullopt;
  const std::int64_t arenas = 1 + request.pending_sums();
  for (const bool hides_reductions : {true, false}) {
    const std::vector<Stretch> lives = gradient_lives(rank, list, hides_reductions);
    GradientWindows windows;
    place_sections(windows, rank, conflicts_of(lives), [](const Section&) { return true; });
    if (arenas * windows.elements + gradient_shard_elements(rank.sections) >= arenas * rank.layout.gradient_elements) {
      continue;
    }
    windows.until = until_used_again(rank, windows.offsets, lives, list.size());
    return windows;
  }
  return std::nullopt;
}

std::optional<ParameterWindows> parameter_windows(const PlanRequest& request, const RankPlan& rank,
                                                  const RankLists& lists, bool per_use) {
  if (request.zero < 3 || request.batch.replicas == 1) return std::nullopt;
  ParameterWindows windows;
  windows.per_use = per_use;
  windows.training = gatherings(rank, lists.training, per_use);
  windows.validation = gatherings(rank, lists.validation, per_use);
  windows.generation = gatherings(rank, lists.generation, per_use);
  Conflicts conflicts(rank.sections.size(), std::vector<bool>(rank.sections.size(), false));
  for (const auto* list : {&windows.training, &windows.validation, &windows.generation}) {
    add_conflicts(conflicts, *list);
  }
  place_sections(windows, rank, conflicts, [](const Section& section) { return section.has_parameters; });
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t element = element_size(request.precision);
  const std::int64_t whole = rank.layout.elements * (request.precision == Precision::fp32 ? kFloat : kFloat + element);
  if (shard_elements(rank.sections) * kFloat + windows.elements * element >= whole) return std::nullopt;
  return windows;
}

}  // namespace train_gpt

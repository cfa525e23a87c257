#include "pipeline/schedule/catalog.h"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>

#include "pipeline/schedule/generators.h"

namespace train_gpt {

namespace {

// The demands of a schedule on m and p beyond m >= 1 and p >= 1.
enum class Needs { nothing, twice_the_ranks, even_and_twice_the_ranks };

struct Entry {
  const char* name;
  Placement::Kind placement;
  int chunks;        // the default number of virtual stages per rank
  bool free_chunks;  // any other number works, too
  bool grouped;      // micro-batches walk through the chunks in groups
  Needs needs;
  Schedule (*generate)(const ScheduleRequest& resolved);
};

std::span<const Entry> catalog() {
  using Request = const ScheduleRequest&;
  using Kind = Placement::Kind;
  static const std::array entries{
      // clang-format off
      Entry{"gpipe", Kind::loop, 1, false, false, Needs::nothing, [](Request q) { return gpipe(q.ranks, q.micro_batches); }},
      Entry{"1f1b", Kind::loop, 1, false, false, Needs::nothing, [](Request q) { return one_f_one_b(q.ranks, q.micro_batches); }},
      Entry{"interleaved", Kind::loop, 2, true, true, Needs::nothing,
            [](Request q) { return interleaved(q.ranks, q.micro_batches, q.chunks, q.group_size); }},
      Entry{"breadth-first", Kind::loop, 2, true, false, Needs::nothing,
            [](Request q) { return breadth_first(q.ranks, q.micro_batches, q.chunks); }},
      Entry{"zb-h1", Kind::loop, 1, false, false, Needs::nothing, [](Request q) { return zb_h1(q.ranks, q.micro_batches); }},
      Entry{"zb-h2", Kind::loop, 1, false, false, Needs::nothing, [](Request q) { return zb_h2(q.ranks, q.micro_batches); }},
      Entry{"interleaved-zb", Kind::loop, 2, true, true, Needs::nothing,
            [](Request q) { return interleaved_zb(q.ranks, q.micro_batches, q.chunks, q.group_size); }},
      Entry{"zb-v", Kind::v_shape, 2, false, false, Needs::nothing, [](Request q) { return zb_v(q.ranks, q.micro_batches); }},
      Entry{"1f1b-v", Kind::v_shape, 2, false, false, Needs::nothing, [](Request q) { return one_f_one_b_v(q.ranks, q.micro_batches); }},
      Entry{"v-half", Kind::v_shape, 2, false, false, Needs::nothing, [](Request q) { return v_half(q.ranks, q.micro_batches); }},
      Entry{"v-min", Kind::v_shape, 2, false, false, Needs::nothing, [](Request q) { return v_min(q.ranks, q.micro_batches); }},
      Entry{"dualpipe", Kind::bidirectional, 1, false, false, Needs::even_and_twice_the_ranks,
            [](Request q) { return dualpipe(q.ranks, q.micro_batches); }},
      Entry{"dualpipev", Kind::v_shape, 2, false, false, Needs::twice_the_ranks,
            [](Request q) { return dualpipev(q.ranks, q.micro_batches); }},
      // clang-format on
  };
  return entries;
}

const Entry* find(const std::string& name) {
  for (const Entry& entry : catalog()) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

const Entry& known(const std::string& name) {
  if (const Entry* entry = find(name)) return *entry;
  throw std::invalid_argument(*violation({.name = name}));
}

// Megatron-LM's rule: a last group smaller than p would arrive too late for the next chunk.
bool legal_group_size(int g, int p, int m) {
  if (m < p) return g == m;
  return g >= p && g <= m && (m % g == 0 || m % g >= p);
}

std::string nearest_group_sizes(int g, int p, int m) {
  if (m < p) return std::to_string(m);
  int below = std::clamp(g, p, m);
  while (!legal_group_size(below, p, m) && below > p) --below;
  int above = std::clamp(g, p, m);
  while (!legal_group_size(above, p, m)) ++above;  // g = m is always legal
  if (below == above || !legal_group_size(below, p, m)) return std::to_string(above);
  return std::to_string(below) + " and " + std::to_string(above);
}

// "8 and 10" around m = 9: legal numbers are the multiples of `step` from `minimum` on.
std::string nearest_micro_batches(std::int64_t m, std::int64_t minimum, int step) {
  if (m <= minimum) return std::to_string(minimum);
  return std::to_string(m - m % step) + " and " + std::to_string(m - m % step + step);
}

std::optional<std::string> violation_of_needs(const ScheduleRequest& request, Needs needs) {
  const std::int64_t p = request.ranks;
  const std::int64_t m = request.micro_batches;
  if (needs == Needs::nothing) return std::nullopt;
  const bool even = needs == Needs::even_and_twice_the_ranks;
  if (even && p % 2 != 0) {
    return "schedule " + request.name + " needs an even number of stages, but there are " + std::to_string(p) +
           ": nearest legal values: " + (p > 1 ? std::to_string(p - 1) + " and " : "") + std::to_string(p + 1);
  }
  if (m >= 2 * p && !(even && m % 2 != 0)) return std::nullopt;
  return "--micro-batches " + std::to_string(m) + ": schedule " + request.name + " at " + std::to_string(p) +
         " stages needs " + (even ? "an even number, " : "") + "at least " + std::to_string(2 * p) +
         ": nearest legal values: " + nearest_micro_batches(m, 2 * p, even ? 2 : 1);
}

std::optional<std::string> violation_of_chunks(const ScheduleRequest& request, const Entry& entry) {
  const int v = request.chunks;
  if (v == 0 || v == entry.chunks || (entry.free_chunks && v > 0)) return std::nullopt;
  const std::string fixed = std::to_string(entry.chunks);
  return "--chunks " + std::to_string(v) + ": schedule " + request.name +
         (entry.free_chunks ? " needs at least 1 virtual stage per rank (default " + fixed + ")"
                            : " always has " + fixed + " virtual stage" + (entry.chunks > 1 ? "s" : "") +
                                  " per rank: say " + fixed + " or nothing");
}

std::optional<std::string> violation_of_group_size(const ScheduleRequest& request, const Entry& entry) {
  const int g = request.group_size;
  const int p = request.ranks;
  const int m = request.micro_batches;
  if (g == 0) return std::nullopt;
  const std::string found = "--group-size " + std::to_string(g) + ": ";
  if (!entry.grouped) {
    return found + "schedule " + request.name + " has no groups; interleaved and interleaved-zb have";
  }
  if (legal_group_size(g, p, m)) return std::nullopt;
  return found + "schedule " + request.name + " at " + std::to_string(p) + " stages and " + std::to_string(m) +
         " micro-batches needs " +
         (m < p ? "one group of all micro-batches"
                : "a size from " + std::to_string(p) + " to " + std::to_string(m) +
                      " that divides the micro-batches or leaves a last group of at least " + std::to_string(p)) +
         ": nearest legal values: " + nearest_group_sizes(g, p, m);
}

std::string all_names() {
  std::string text;
  for (const std::string& name : schedule_names()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Micro-batch passes through virtual stages; beyond this the lists alone would take more than 10 GB.
constexpr std::int64_t kMostPasses = std::int64_t{1} << 28;

std::optional<std::string> violation_of_sizes(const ScheduleRequest& request, const Entry& entry) {
  const std::int64_t p = request.ranks;
  const std::int64_t m = request.micro_batches;
  if (p < 1) return "--stages " + std::to_string(p) + ": a pipeline needs at least 1 stage";
  if (m < 1) return "--micro-batches " + std::to_string(m) + ": a step needs at least 1 micro-batch";
  const std::int64_t v = request.chunks > 0 ? request.chunks : entry.chunks;
  if (v <= kMostPasses / p && p * v <= kMostPasses / m) return std::nullopt;
  return "schedule " + request.name + " with " + std::to_string(p) + " stages, " + std::to_string(v) + " chunks and " +
         std::to_string(m) + " micro-batches is too large: stages x chunks x micro-batches may be at most " +
         std::to_string(kMostPasses);
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : catalog()) all.emplace_back(entry.name);
    return all;
  }();
  return names;
}

bool takes_chunks(const std::string& name) { return known(name).free_chunks; }
bool takes_group_size(const std::string& name) { return known(name).grouped; }
Placement::Kind placement_kind(const std::string& name) { return known(name).placement; }
int default_chunks(const std::string& name) { return known(name).chunks; }

int default_group_size(int p, int m) {
  if (m < p) return m;
  int g = p;
  while (!legal_group_size(g, p, m)) ++g;
  return g;
}

std::optional<std::string> violation(const ScheduleRequest& request) {
  const Entry* entry = find(request.name);
  if (!entry) return "--schedule " + request.name + ": no such schedule; there are " + all_names() + " and auto";
  if (auto text = violation_of_chunks(request, *entry)) return text;
  if (auto text = violation_of_sizes(request, *entry)) return text;
  if (auto text = violation_of_needs(request, entry->needs)) return text;
  return violation_of_group_size(request, *entry);
}

Schedule make_schedule(const ScheduleRequest& request) {
  if (auto text = violation(request)) throw std::invalid_argument(*text);
  const Entry& entry = *find(request.name);
  ScheduleRequest resolved = request;
  if (resolved.chunks == 0) resolved.chunks = entry.chunks;
  if (resolved.group_size == 0) resolved.group_size = default_group_size(request.ranks, request.micro_batches);
  Schedule schedule = entry.generate(resolved);
  schedule.name = request.name;
  return schedule;
}

}  // namespace train_gpt

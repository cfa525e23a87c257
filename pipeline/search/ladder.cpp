#include "pipeline/search/ladder.h"

#include <algorithm>
#include <bit>

#include "pipeline/search/problem.h"

namespace train_gpt::search {
namespace {

int step_at(int n) { return n < 4 ? 1 : static_cast<int>(std::bit_floor(static_cast<unsigned>(n)) / 2); }

int memory_step_at(int n) { return n < 8 ? 1 : static_cast<int>(std::bit_floor(static_cast<unsigned>(n)) / 4); }

}  // namespace

bool on_ladder(int n) { return n % step_at(n) == 0; }

int ladder_below(int n) { return n - n % step_at(n); }

std::vector<double> memory_ladder(int chunks, double weight_memory, double most) {
  constexpr int kMixed = 3;
  std::vector<double> rungs;
  const auto add = [&](double stages) {
    const double limit = stages / chunks;
    if (limit >= Problem::kLeastLimit - kMemorySlack && limit <= most + kMemorySlack) rungs.push_back(limit);
  };
  add(chunks);
  const int first = chunks - chunks % memory_step_at(chunks);
  for (int stages = first; stages <= most * chunks + kMemorySlack; stages += memory_step_at(stages)) add(stages);
  for (int whole = 0; whole <= kMixed; ++whole)
    for (int kept = 1; whole + kept <= kMixed; ++kept) add(whole + kept * weight_memory);
  std::sort(rungs.begin(), rungs.end());
  const auto same = [](double a, double b) { return b - a < kMemorySlack; };
  rungs.erase(std::unique(rungs.begin(), rungs.end(), same), rungs.end());
  return rungs;
}

}  // namespace train_gpt::search

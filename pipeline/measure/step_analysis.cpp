#include "pipeline/measure/step_analysis.h"

#include <algorithm>
#include <cstdio>

#include "pipeline/draw/table.h"

namespace train_gpt {
namespace {

RankAnalysis analyse_rank(const MeasuredRank& rank, double first_start, double last_end) {
  RankAnalysis result;
  for (const MeasuredAction& action : rank.actions) {
    result.busy += action.end - action.begin;
    result.waiting += std::max(0.0, action.begin - std::max(action.wait_begin, first_start));
  }
  result.idle = last_end - first_start - result.busy;
  for (const MeasuredLowered& it : rank.lowered) {
    (it.letter == 'U' ? result.update : result.reduction) += it.end - it.begin;
    result.post_flush = std::max(result.post_flush, it.end - last_end);
  }
  return result;
}

std::string fixed(double value, int decimals) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

// Three significant digits: a step may take a millisecond or minutes.
int decimals_for(double makespan) { return makespan < 10 ? 3 : makespan < 100 ? 2 : 1; }

}  // namespace

StepAnalysis analyse(const Schedule& schedule, const MeasuredStep& step, const Simulation& predicted) {
  StepAnalysis result;
  result.step = step.step;
  result.measured = as_simulation(step, predicted);
  result.predicted = predicted;
  result.idle = explain_idle(schedule, result.measured);
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    result.ranks.push_back(analyse_rank(step.ranks[r], step.first_start(), step.last_end()));
    result.ranks.back().parts = result.idle.ranks[r];
  }
  return result;
}

std::string analysis_table(const StepAnalysis& analysis, int most_rows) {
  std::vector<std::vector<std::string>> rows = {{"rank", "busy ms", "waiting", "idle", "= schedule", "+ imbalance",
                                                 "+ jitter", "+ communication", "R", "U", "post-flush"}};
  const int decimals = decimals_for(analysis.measured.makespan);
  const auto ms = [&](double value) { return fixed(value, decimals); };
  const auto count = static_cast<int>(analysis.ranks.size());
  const int above = count <= most_rows ? count : (most_rows + 1) / 2;
  const int below = count <= most_rows ? 0 : most_rows / 2;
  double busy = 0;
  for (int r = 0; r < count; ++r) {
    const RankAnalysis& it = analysis.ranks[static_cast<std::size_t>(r)];
    busy += it.busy;
    if (r == above && below > 0) rows.push_back({"... " + std::to_string(count - above - below) + " more"});
    if (r >= above && r < count - below) continue;
    rows.push_back({std::to_string(r), ms(it.busy), ms(it.waiting), ms(it.idle), ms(it.parts.schedule),
                    ms(it.parts.imbalance), ms(it.parts.jitter), ms(it.parts.communication), ms(it.reduction),
                    ms(it.update), ms(it.post_flush)});
  }
  const auto share = [&](double value) { return percent(value / analysis.idle.available); };
  const IdleParts& all = analysis.idle.all;
  rows.push_back({"all", share(busy), "", share(all.sum()), share(all.schedule), share(all.imbalance),
                  share(all.jitter), share(all.communication)});
  return draw_table(rows);
}

std::string analysis_summary(const StepAnalysis& analysis) {
  const int decimals = decimals_for(analysis.measured.makespan);
  double update = 0, post_flush = 0;
  for (const RankAnalysis& rank : analysis.ranks) {
    update = std::max(update, rank.update);
    post_flush = std::max(post_flush, rank.post_flush);
  }
  char text[300];
  std::snprintf(text, sizeof text,
                "%.*f ms from first to last action (predicted %.*f), bubble %.1f%% (predicted %.1f%%), span bubble "
                "%.1f%% (predicted %.1f%%); the longest update is %.1f%% of the step",
                decimals, analysis.measured.makespan, decimals, analysis.predicted.makespan,
                100 * analysis.measured.bubble, 100 * analysis.predicted.bubble, 100 * analysis.measured.bubble_span,
                100 * analysis.predicted.bubble_span, 100 * update / (analysis.measured.makespan + post_flush));
  return text;
}

}  // namespace train_gpt

// From a simulation to the bars of a picture.
#include "pipeline/draw/timeline.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

std::string figures(const Simulation& simulation) {
  const double peak = *std::max_element(simulation.peak_live.begin(), simulation.peak_live.end());
  char text[200];
  std::snprintf(text, sizeof text, "makespan %.6g ms, bubble %.1f%%, span bubble %.1f%%, at most %.4g live activations",
                simulation.makespan, 100.0 * simulation.bubble, 100.0 * simulation.bubble_span, peak);
  return text;
}

// Place of each virtual stage among those of its rank.
std::vector<int> chunks_of_stages(const Placement& placement) {
  std::vector<int> result(placement.stages.size(), 0);
  for (int rank = 0; rank < placement.ranks; ++rank) {
    const std::vector<int> stages = placement.stages_of(rank);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const Placement::VirtualStage& stage = placement.stages[stages[i]];
      result[stages[i]] = placement.kind == Placement::Kind::bidirectional ? stage.copy : static_cast<int>(i);
    }
  }
  return result;
}

}  // namespace

Timeline timeline(const Schedule& schedule, const Simulation& simulation) {
  if (simulation.intervals.size() != schedule.lists.size()) {
    throw std::logic_error("timeline: the simulation of " + schedule.name + " kept no intervals");
  }
  Timeline result;
  result.title = schedule.name + ": p = " + std::to_string(schedule.ranks) +
                 ", v = " + std::to_string(schedule.chunks) +
                 ", m = " + std::to_string(micro_batches_of_step(schedule));
  if (schedule.steps > 1) result.title += ", " + std::to_string(schedule.steps) + " steps from fill to drain";
  result.note = figures(simulation);
  result.chunk_of_stage = chunks_of_stages(schedule.placement);
  result.chunks = 1 + *std::max_element(result.chunk_of_stage.begin(), result.chunk_of_stage.end());
  if (schedule.placement.kind == Placement::Kind::bidirectional) result.chunk_name = "copy";
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<Action>& list = schedule.actions(rank);
    const std::vector<Interval>& intervals = simulation.intervals[rank];
    std::vector<TimelineBar>& row = result.rows.emplace_back();
    row.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      row.push_back({.start = intervals[i].start,
                     .end = intervals[i].end,
                     .letter = op_letter(list[i].op),
                     .stage = list[i].stage,
                     .micro_batch = list[i].micro_batch});
      const bool second_of_pair = i > 0 && list[i - 1].fused_with_next && row[i].start == row[i - 1].start &&
                                  row[i].end > row[i].start && row[i - 1].lane == TimelineBar::Lane::whole;
      if (!second_of_pair) continue;
      row[i - 1].lane = TimelineBar::Lane::upper;
      row[i].lane = TimelineBar::Lane::lower;
    }
  }
  return result;
}

void add_versions(Timeline& timeline, const Schedule& schedule) {
  for (std::size_t rank = 0; rank < timeline.rows.size(); ++rank) {
    const std::vector<Action>& list = schedule.actions(static_cast<int>(rank));
    for (std::size_t i = 0; i < list.size(); ++i) timeline.rows[rank][i].version = version_of(schedule, list[i]);
  }
}

}  // namespace train_gpt

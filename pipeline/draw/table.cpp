// Tables of simulations' results.
#include "pipeline/draw/table.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {
namespace {

using Rows = std::vector<std::vector<std::string>>;

double largest(const std::vector<double>& values) {
  return values.empty() ? 0.0 : *std::max_element(values.begin(), values.end());
}

// Fewest receive slots with which no channel slows a sender down; a channel has at least two. "-": not simulated.
std::string slots(const Simulation& simulation) {
  if (simulation.channels.empty() && simulation.messages > 0) return "-";
  int result = 2;
  for (const ChannelLoad& load : simulation.channels) result = std::max(result, load.longest_queue);
  return std::to_string(result);
}

void leave_out_middle(Rows& rows, int most) {
  const int count = static_cast<int>(rows.size()) - 1;
  if (count <= most) return;
  const int above = (most + 1) / 2, below = most / 2;
  rows.erase(rows.begin() + 1 + above, rows.end() - below);
  rows.insert(rows.begin() + 1 + above, {"... " + std::to_string(count - most) + " more"});
}

}  // namespace

std::string draw_table(const Rows& rows) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "  ";
      line += i == 0 ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string with_digits(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string percent(double fraction) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2f%%", 100.0 * fraction);
  return text;
}

std::string compare_table(const std::vector<ComparedSchedule>& schedules, bool by_span) {
  Rows rows = {{"schedule", "v", "makespan ms", "bubble", "span ms", "span bubble", "lower bound ms", "peak live",
                "pending W", "messages", "slots"}};
  const auto objective = [&](const ComparedSchedule& it) {
    return by_span ? it.simulation->span : it.simulation->makespan;
  };
  double best = 0.0;
  for (const ComparedSchedule& it : schedules) {
    best = &it == &schedules.front() ? objective(it) : std::min(best, objective(it));
  }
  for (const ComparedSchedule& it : schedules) {
    const Simulation& simulation = *it.simulation;
    const bool is_best = schedules.size() > 1 && objective(it) <= best * (1.0 + 1e-12);
    rows.push_back({(is_best                ? "* "
                     : schedules.size() > 1 ? "  "
                                            : "") +
                        it.name,
                    std::to_string(it.chunks), with_digits(simulation.makespan, 7), percent(simulation.bubble),
                    with_digits(simulation.span, 7), percent(simulation.bubble_span),
                    with_digits(simulation.lower_bound, 7), with_digits(largest(simulation.peak_live), 5),
                    with_digits(largest(simulation.peak_pending_weight), 5), std::to_string(simulation.messages),
                    slots(simulation)});
  }
  const std::string legend = by_span ? "* smallest span\n" : "* smallest makespan\n";
  return draw_table(rows) + (schedules.size() > 1 ? legend : "");
}

std::string rank_table(const Simulation& simulation, int most_rows) {
  Rows rows = {{"rank", "busy ms", "idle", "first start", "last end", "peak live", "pending W"}};
  for (std::size_t rank = 0; rank < simulation.busy.size(); ++rank) {
    const double idle = simulation.makespan > 0.0 ? 1.0 - simulation.busy[rank] / simulation.makespan : 0.0;
    rows.push_back({std::to_string(rank), with_digits(simulation.busy[rank], 7), percent(std::max(idle, 0.0)),
                    with_digits(simulation.first_start[rank], 7), with_digits(simulation.last_end[rank], 7),
                    with_digits(simulation.peak_live[rank], 5), with_digits(simulation.peak_pending_weight[rank], 5)});
  }
  leave_out_middle(rows, most_rows);
  return draw_table(rows);
}

std::string channel_table(const Simulation& simulation, int most_rows) {
  const bool sizes_known = simulation.bytes > 0.0;
  Rows rows = {{"channel", "messages", "slots"}};
  if (sizes_known) rows[0].push_back("MB");
  for (const ChannelLoad& load : simulation.channels) {
    const char* kind = load.channel.kind == Channel::Kind::activation ? "activations" : "gradients";
    rows.push_back(
        {std::to_string(load.channel.source) + " -> " + std::to_string(load.channel.destination) + " " + kind,
         std::to_string(load.messages), std::to_string(std::max(load.longest_queue, 2))});
    if (sizes_known) rows.back().push_back(with_digits(load.bytes / 1e6, 6));
  }
  leave_out_middle(rows, most_rows);
  return draw_table(rows);
}

std::string critical_path_summary(const Schedule& schedule, const Simulation& simulation) {
  std::array<int, 4> counts{};
  int hops = 0;
  double working = 0.0;
  const std::vector<ActionPosition>& path = simulation.critical_path;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const Interval& interval = simulation.intervals[path[i].rank][path[i].position];
    working += interval.end - interval.start;
    ++counts[static_cast<std::size_t>(schedule.actions(path[i].rank)[path[i].position].op)];
    if (i > 0 && path[i].rank != path[i - 1].rank) ++hops;
  }
  std::string text = "critical path:";
  for (Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight}) {
    const int count = counts[static_cast<std::size_t>(op)];
    if (count > 0) text.append(" ").append(std::to_string(count)).append(" ").append(1, op_letter(op));
  }
  text += " (" + with_digits(working, 7) + " ms) and " + std::to_string(hops) + " hops (" +
          with_digits(std::max(simulation.makespan - working, 0.0), 5) + " ms)";
  if (!path.empty()) {
    const auto name = [&](const ActionPosition& at) {
      return to_string(schedule.actions(at.rank)[at.position]) + " on rank " + std::to_string(at.rank);
    };
    text += ", from " + name(path.front()) + " to " + name(path.back());
  }
  return text + "\n";
}

}  // namespace train_gpt

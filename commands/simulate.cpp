#include "commands/commands.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "commands/expectations.h"
#include "commands/simulate_schedules.h"
#include "pipeline/draw/markup.h"
#include "pipeline/draw/page.h"
#include "pipeline/draw/table.h"
#include "pipeline/draw/timeline.h"
#include "pipeline/schedule/csv.h"

namespace train_gpt {
namespace {

constexpr const char* kTableWords =
    "v: virtual stages per rank; bubble: idle share of ranks x makespan; span: the longest time from a rank's first\n"
    "action to its own last; span bubble: 1 - a rank's work / span; peak live: activations held at once, in\n"
    "micro-batches; pending W: what I left for W, likewise; slots: message buffers of a channel\n";

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string list_of(const std::vector<double>& values) {
  std::vector<std::string> words;
  for (double value : values) words.push_back(with_digits(value, 6));
  return join(words);
}

// The terminal's width; without one, the width of train's pictures.
int terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return TextOptions{}.columns;
}

void print_header(const Options& options, const SimulatedSchedules& all, std::ostream& out) {
  const Schedule& first = all.simulated.front().schedule;
  const Costs costs = costs_of(options, first.ranks);
  out << "p = " << first.ranks << ", m = " << micro_batches_of_step(first) << "; F = " << list_of(costs.forward)
      << ", I = " << list_of(costs.input) << ", W = " << list_of(costs.weight) << " ms";
  if (!options.costs.given) out << " (no costs given: 1 ms each)";
  if (costs.latency != std::vector<double>{0.0}) out << "; a hop takes " << list_of(costs.latency) << " ms";
  if (!costs.bandwidth.empty()) {
    out << "; " << with_digits(costs.message_bytes / 1e6, 6) << " MB per message at " << list_of(costs.bandwidth)
        << " GB/s";
  }
  if (costs.send_slowdown > 0.0) out << "; sends slow actions by " << with_digits(100 * costs.send_slowdown, 4) << "%";
  if (!costs.fused.empty()) out << "; a fused F&B pair takes " << list_of(costs.fused) << " ms";
  out << "\n\n";
}

void print_left_out(const SimulatedSchedules& all, const std::vector<double>& limit, std::ostream& out) {
  for (const std::string& reason : all.impossible) out << "not possible: " << reason << "\n";
  if (!all.over_limit.empty()) {
    out << "left out, more live activations than --activation-limit " << list_of(limit) << ": " << join(all.over_limit)
        << "\n";
  }
}

void print_details(const SimulatedSchedule& it, std::ostream& out) {
  constexpr int kMostRows = 32;
  out << "\n" << rank_table(it.simulation, kMostRows);
  if (!it.simulation.channels.empty()) out << "\n" << channel_table(it.simulation, kMostRows);
  if (!it.simulation.critical_path.empty()) out << "\n" << critical_path_summary(it.schedule, it.simulation);
}

void print_report(const Options& options, const SimulatedSchedules& all, std::ostream& out) {
  print_header(options, all, out);
  if (options.simulate.ascii) {
    for (const SimulatedSchedule& it : all.simulated) {
      out << draw_text(timeline(it.schedule, it.simulation), {.columns = terminal_columns()}) << "\n";
    }
  }
  std::vector<ComparedSchedule> compared;
  for (const SimulatedSchedule& it : all.simulated) compared.push_back({it.name, it.schedule.chunks, &it.simulation});
  out << compare_table(compared, options.simulate.objective == Objective::span) << kTableWords;
  for (const SimulatedSchedule& it : all.simulated) {
    for (const std::string& remark : it.remarks) out << remark << "\n";
  }
  if (all.simulated.size() == 1) print_details(all.simulated.front(), out);
  print_left_out(all, options.simulate.memory_limit, out);
}

void print_json(const SimulatedSchedules& all, std::ostream& out) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const SimulatedSchedule& it : all.simulated) {
    nlohmann::ordered_json object;
    object["schedule"] = it.name;
    object["stages"] = it.schedule.ranks;
    object["chunks"] = it.schedule.chunks;
    object["micro_batches"] = micro_batches_of_step(it.schedule);
    object["makespan"] = it.simulation.makespan;
    object["bubble"] = it.simulation.bubble;
    object["span"] = it.simulation.span;
    object["bubble_span"] = it.simulation.bubble_span;
    object["lower_bound"] = it.simulation.lower_bound;
    object["peak_live"] = it.simulation.peak_live;
    object["messages"] = it.simulation.messages;
    if (it.reduced) {
      object["step_with_reductions"] = it.reduced->end;
      object["reductions_exposed"] = it.reduced->exposed;
    }
    if (it.shared) {
      object["step_with_replicas"] = it.shared->end;
      object["replicas_exposed"] = it.shared->exposed;
    }
    if (it.steady) {
      object["steps"] = it.schedule.steps;
      object["steady_period"] = it.steady->period;
      object["steady_bubble"] = it.steady->bubble;
    }
    array.push_back(std::move(object));
  }
  // A file name may hold bytes that are not UTF-8: they are replaced.
  out << array.dump(2, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

template <typename Write>
void write_file(const char* option, const std::string& path, const Write& write) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (file) write(file);
  file.close();
  if (!file) throw std::runtime_error(std::string(option) + " " + path + ": cannot be written");
}

void write_files(const Options& options, const SimulatedSchedules& all) {
  const SimulateOutputOptions& wanted = options.simulate;
  if (!wanted.svg.empty()) {
    std::vector<Timeline> timelines;
    for (const SimulatedSchedule& it : all.simulated) {
      const Costs costs = costs_of(options, it.schedule.ranks);
      timelines.push_back(timeline(it.schedule, it.simulation));
      if (it.schedule.steps > 1) add_versions(timelines.back(), it.schedule);
      if (costs.has_links())
        add_messages(timelines.back(), it.schedule, it.simulation, stage_costs(costs, it.schedule.placement));
    }
    const std::string picture = draw_svg(timelines);
    write_file("--svg", wanted.svg, [&](std::ostream& file) { file << picture; });
  }
  if (!wanted.html.empty()) {
    const SimulatedSchedule& first = all.simulated.front();
    std::size_t actions = 0;
    for (const std::vector<Action>& list : first.schedule.lists) actions += list.size();
    if (actions > kMostActionsOnPage)
      throw std::invalid_argument("--html " + wanted.html + ": the schedule has " + std::to_string(actions) +
                                  " actions, a page shows at most " + std::to_string(kMostActionsOnPage));
    const std::string page = schedule_page(first.schedule, first.simulation, wanted.weight_memory);
    write_file("--html", wanted.html, [&](std::ostream& file) { file << page; });
  }
  if (!wanted.csv.empty()) {
    write_file("--csv", wanted.csv,
               [&](std::ostream& file) { write_schedule_csv(all.simulated.front().schedule, file); });
  }
}

// Time against memory for named schedules and the search.
void print_pareto(const Options& options, std::ostream& out) {
  std::vector<MemoryAndTime> points = memory_and_time(options);
  mark_best(points);
  out << pareto_table(points);
  const std::string title = "p = " + std::to_string(options.costs.stages) +
                            ", m = " + std::to_string(options.batch.micro_batches) + ": time against memory";
  if (!options.simulate.svg.empty())
    write_file("--svg", options.simulate.svg, [&](std::ostream& file) { file << pareto_svg(points, title); });
  out.flush();
}

// True if all schedules meet all conditions of --expect; prints it for each, and that those left out do not.
bool meet(const std::vector<Expectation>& expectations, const SimulatedSchedules& all, std::ostream& out) {
  bool every = expectations.empty() || (all.over_limit.empty() && all.impossible.empty());
  if (!expectations.empty()) out << "\n";
  for (const SimulatedSchedule& it : all.simulated) {
    for (const Expectation& expectation : expectations) {
      every = every && is_met(expectation, it.simulation);
      out << "expected of " << printable(it.name) << ": " << verdict(expectation, it.simulation) << "\n";
    }
  }
  return every;
}

}  // namespace

int run_simulate(const Options& options, std::ostream& out, std::ostream& notices) {
  const SimulateOutputOptions& wanted = options.simulate;
  std::vector<Expectation> expectations;
  if (!wanted.expect.empty()) expectations = parse_expectations(wanted.expect);
  if (wanted.pareto) {
    print_pareto(options, out);
    return 0;
  }
  const bool single = !options.pipeline.schedule_file.empty() || options.pipeline.schedules.size() == 1;
  const bool drawn = wanted.ascii || !wanted.svg.empty() || !wanted.html.empty();
  const Detail detail = drawn || (single && !wanted.json) ? Detail::intervals
                        : wanted.json                     ? Detail::figures
                                                          : Detail::channels;
  const SimulatedSchedules all = simulate_all(options, detail);
  if (all.simulated.empty()) {
    throw std::invalid_argument(all.over_limit.empty()
                                    ? "--schedule all: none is possible: " + join(all.impossible)
                                    : "--activation-limit " + list_of(wanted.memory_limit) +
                                          ": every schedule keeps more activations alive: " + join(all.over_limit));
  }
  write_files(options, all);
  if (wanted.json) {
    print_json(all, out);
    for (const SimulatedSchedule& it : all.simulated) {
      for (const std::string& remark : it.remarks) notices << printable(remark) << "\n";
    }
    std::ostringstream left_out;
    print_left_out(all, wanted.memory_limit, left_out);
    notices << printable(left_out.str());
  } else {
    std::ostringstream report;
    print_report(options, all, report);
    out << printable(report.str());
  }
  const bool met = meet(expectations, all, wanted.json ? notices : out);
  out.flush();
  return met ? 0 : 1;
}

}  // namespace train_gpt

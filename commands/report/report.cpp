#include "commands/report/report.h"

#include <algorithm>
#include <cstdio>

#include "commands/report/report_log.h"
#include "pipeline/draw/chart.h"
#include "pipeline/draw/table.h"
#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {
namespace {

constexpr const char* kHead =
    "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>train_gpt report</title>\n<style>"
    "body{font:14px/1.5 system-ui,sans-serif;color:#1a1a1a;max-width:1100px;margin:24px auto;padding:0 20px}"
    "h1{font-size:22px;margin:0 0 8px}h2{font-size:17px;margin:32px 0 6px;border-bottom:1px solid #ddd}"
    "p{margin:4px 0 10px}pre{background:#f6f6f8;padding:10px;overflow-x:auto;font-size:12px;line-height:1.4}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:8px 0}"
    "td,th{padding:3px 10px;text-align:right;border-bottom:1px solid #eee;white-space:nowrap}"
    "td:first-child,th:first-child{text-align:left}td.label,th.label{text-align:left}.explain{color:#555;font-size:"
    "13px}"
    "</style></head><body>\n";

constexpr const char* kPalette[] = {"#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2",
                                    "#eeca3b", "#9d755d", "#ff9da6", "#79706e", "#2f5d50", "#8c6bb1"};

using Cells = std::vector<std::vector<std::string>>;

// The first row is the header; the first column holds names, and so does column `names`.
std::string table(const Cells& rows, std::size_t names = 0) {
  std::string out = "<div class='wide'><table>";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string cell = r == 0 ? "th" : "td";
    out += "<tr>";
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      out += "<" + cell + (c == names ? " class='label'>" : ">") + escaped_markup(rows[r][c]) + "</" + cell + ">";
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string section(const std::string& title, const std::string& explanation, const std::string& body) {
  return "<h2>" + title + "</h2>\n<p class='explain'>" + explanation + "</p>\n" + body;
}

StepSeries scaled(StepSeries series, double factor) {
  for (auto& [step, value] : series) value *= factor;
  return series;
}

std::string curves_over_steps(const LoggedRun& run) {
  std::vector<Curve> losses = {{"training loss", kPalette[0], run.loss, false}};
  if (!run.validation_loss.empty()) losses.push_back({"validation loss", kPalette[1], run.validation_loss, true});
  const std::vector<Curve> bubbles = {{"measured", kPalette[0], scaled(run.bubble, 100), false},
                                      {"predicted", kPalette[3], scaled(run.bubble_predicted, 100), false}};
  const bool computed = !run.loss.empty() || !run.validation_loss.empty();  // the timed device has no losses
  return (computed ? section("Loss", "Mean over the tokens of each step, before its update.",
                             draw_curves(losses, {.x_name = "step", .y_name = "loss"}))
                   : "") +
         section("Bubble of every step",
                 "1 - busy / (ranks &middot; makespan); the makespan runs from the first action's start to the last "
                 "action's end.",
                 draw_curves(bubbles, {.x_name = "step", .y_name = "bubble", .unit = "%", .from_zero = true}));
}

std::string idle_section(const ReportInput& input) {
  const StepAnalysis& analysis = *input.analysis;
  StackedBars bars{.parts = {{"busy", "#c9d4e3"},
                             {"schedule", kPalette[0]},
                             {"imbalance", kPalette[1]},
                             {"jitter", kPalette[6]},
                             {"exposed communication", kPalette[3]}},
                   .rows = {},
                   .values = {},
                   .unit = "ms"};
  for (std::size_t r = 0; r < analysis.ranks.size(); ++r) {
    const RankAnalysis& rank = analysis.ranks[r];
    bars.rows.push_back("rank " + std::to_string(r));
    bars.values.push_back(
        {rank.busy, rank.parts.schedule, rank.parts.imbalance, rank.parts.jitter, rank.parts.communication});
  }
  return section(
      "Idle time explained",
      "Telescoping simulations of the same action lists with free communication: equal mean costs leave the "
      "<b>schedule</b>'s idle time; every stage's own means add <b>imbalance</b>; the measured duration of "
      "every action adds <b>jitter</b>; the measurement itself adds <b>exposed communication</b>. The parts "
      "sum to the idle time; a part can be negative (a slow rank idles less than equal ranks would). R and U "
      "follow the flush and are not in it.",
      draw_stacked_bars(bars) + "<pre>" + escaped_markup(input.table) + "</pre>\n");
}

std::string memory_section(const Plan& plan) {
  std::vector<std::string> names;
  for (const RankPlan& rank : plan.ranks) {
    for (const MemoryLine& line : rank.memory) {
      if (std::find(names.begin(), names.end(), line.name) == names.end()) names.push_back(line.name);
    }
  }
  StackedBars bars{
      .parts = {}, .rows = {}, .values = std::vector<std::vector<double>>(plan.ranks.size()), .unit = "MiB"};
  Cells rows = {{"kind"}};
  for (const RankPlan& rank : plan.ranks) {
    bars.rows.push_back("rank " + std::to_string(rank.rank));
    rows[0].push_back(bars.rows.back());
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    bars.parts.push_back({names[i], kPalette[i % std::size(kPalette)]});
    rows.push_back({names[i]});
    for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
      std::int64_t bytes = 0;
      for (const MemoryLine& line : plan.ranks[r].memory) bytes += line.name == names[i] ? line.bytes : 0;
      bars.values[r].push_back(static_cast<double>(bytes) / (1 << 20));
      rows.back().push_back(bytes == 0 ? "" : format_bytes(bytes));
    }
  }
  rows.push_back({"total"});
  for (const RankPlan& rank : plan.ranks) rows.back().push_back(format_bytes(rank.total_bytes()));
  return section("Memory per rank", "As planned and allocated before the first step; it never grows.",
                 draw_stacked_bars(bars) + table(rows));
}

std::string unit_name(const ModelConfig& model, int unit) {
  switch (unit_kind(model, unit)) {
    case UnitKind::embedding:
      return "embedding";
    case UnitKind::attention:
      return "attention " + std::to_string(unit_layer(model, unit));
    case UnitKind::mlp:
      return "MLP " + std::to_string(unit_layer(model, unit));
    case UnitKind::head:
      return head_shards(model) == 1 ? "head" : "head " + std::to_string(unit_shard(model, unit));
  }
  return "";
}

std::string partition_section(const Plan& plan, const StepAnalysis& analysis) {
  const Schedule& schedule = plan.request.schedule;
  const std::vector<UnitRange> units = unit_ranges(schedule.placement, plan.request.partition);
  const auto means = stage_means(schedule, analysis.measured);
  Cells rows = {{"virtual stage", "rank", "units"}};
  std::vector<std::size_t> operations;  // that the schedule has
  for (std::size_t op = 0; op < means.size(); ++op) {
    if (std::all_of(means[op].begin(), means[op].end(), [](double mean) { return mean == 0; })) continue;
    operations.push_back(op);
    rows[0].push_back(std::string(1, op_letter(static_cast<Op>(op))) + " ms");
  }
  for (std::size_t s = 0; s < schedule.placement.stages.size(); ++s) {
    const int count = units[s].last - units[s].first;
    rows.push_back({std::to_string(s), std::to_string(schedule.placement.stages[s].rank),
                    std::to_string(count) + ": " + unit_name(plan.request.model, units[s].first) +
                        (count > 1 ? " to " + unit_name(plan.request.model, units[s].last - 1) : "")});
    for (const std::size_t op : operations) rows.back().push_back(with_digits(means[op][s], 4));
  }
  return section("Partition",
                 "Units of the model in each virtual stage, and the mean time of its actions in the step shown.",
                 table(rows, 2));
}

}  // namespace

std::string html_report(const ReportInput& input) {
  const LoggedRun run = read_log(input.log_path);
  std::string out = kHead;
  out += "<h1>train_gpt: " + escaped_markup(input.plan->request.schedule.name) + "</h1>\n<p>";
  for (const std::string& fact : input.facts) out += escaped_markup(fact) + "<br>\n";
  if (!run.ms.empty()) {
    out += "median step " + with_digits(median(run.ms), 5) + " ms, " + with_digits(median(run.tokens_per_s), 5) +
           " tokens/s, median bubble " + percent(median(run.bubble)) + "\n";
  }
  out += "</p>\n" + curves_over_steps(run);
  out += section("Timeline of step " + std::to_string(input.analysis->step),
                 "The step whose makespan is the median of the last steps; hover over an action for its times. " +
                     escaped_markup(analysis_summary(*input.analysis)) + ".",
                 input.timeline_svg.empty() ? "<p>Too many actions for a picture; --trace shows them all.</p>\n"
                                            : "<div class='wide'>" + input.timeline_svg + "</div>\n");
  out += idle_section(input);
  out += memory_section(*input.plan);
  out += partition_section(*input.plan, *input.analysis);
  return out + "</body></html>\n";
}

}  // namespace train_gpt

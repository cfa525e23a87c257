#include "commands/report/report_parts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "commands/report/report.h"
#include "model/config.h"
#include "pipeline/draw/chart.h"
#include "pipeline/draw/markup.h"
#include "pipeline/draw/table.h"
#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPalette[] = {"#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2",
                                    "#eeca3b", "#9d755d", "#ff9da6", "#79706e", "#2f5d50", "#8c6bb1"};
constexpr double kCurveWidth = 540;  // two side by side on a wide window

const Json& array_in(const Json& event, const char* field) {
  static const Json kNone = Json::array();
  if (!event.is_object()) return kNone;
  const auto found = event.find(field);
  return found != event.end() && found->is_array() ? *found : kNone;
}

const Json& object_in(const Json& event, const char* field) {
  static const Json kNone = Json::object();
  if (!event.is_object()) return kNone;
  const auto found = event.find(field);
  return found != event.end() && found->is_object() ? *found : kNone;
}

StepSeries scaled(StepSeries series, double factor) {
  for (auto& [step, value] : series) value *= factor;
  return series;
}

std::string figure(const std::string& title, const std::string& explanation, const std::vector<Curve>& curves,
                   const CurveAxes& axes) {
  return "<figure><figcaption><b>" + title + "</b> " + explanation + "</figcaption>" + draw_curves(curves, axes) +
         "</figure>\n";
}

std::string unit_name(const Json& plan, int unit) {
  ModelConfig model;
  model.layers = std::clamp<std::int64_t>(integer_in(plan, "layers"), 1, 1 << 20);
  model.vocab = std::clamp<std::int64_t>(integer_in(plan, "vocab"), 1, std::int64_t{1} << 31);
  if (unit < 0 || unit >= unit_count(model)) return "unit " + std::to_string(unit);
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

int int_in(const Json& array, std::size_t i) {
  if (!array.is_array() || i >= array.size() || !array[i].is_number()) return 0;
  return static_cast<int>(std::clamp(array[i].get<double>(), -1e9, 1e9));
}

std::string summary_of(const Json& measurement) {
  const auto pair = [&](const char* name, const char* measured, const char* unit, double factor, int digits) {
    const std::string predicted = std::string(measured) + "_predicted";
    return std::string(name) + " " + with_digits(factor * number_in(measurement, measured), digits) + unit +
           " (predicted " + with_digits(factor * number_in(measurement, predicted.c_str()), digits) + unit + ")";
  };
  return pair("from the first action's start to the last action's end", "makespan_ms", " ms", 1, 4) + ", " +
         pair("bubble", "bubble", "%", 100, 3) + ", " + pair("span bubble", "bubble_span", "%", 100, 3);
}

}  // namespace

double number_in(const Json& event, const char* field, double otherwise) {
  if (!event.is_object()) return otherwise;
  const auto found = event.find(field);
  return found != event.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::int64_t integer_in(const Json& event, const char* field) {
  return static_cast<std::int64_t>(std::clamp(number_in(event, field), -0x1p53, 0x1p53));
}

std::string text_in(const Json& event, const char* field) {
  if (!event.is_object()) return "";
  const auto found = event.find(field);
  return found != event.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string html_table(const Cells& rows, std::size_t names) {
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

std::string curves_over_steps(const LoggedRun& run) {
  const auto axes = [&](const char* y_name, const char* unit, bool from_zero) {
    return CurveAxes{.x_name = "step",
                     .y_name = y_name,
                     .unit = unit,
                     .from_zero = from_zero,
                     .width = kCurveWidth,
                     .marks = run.resumes};
  };
  std::string out;
  if (!run.loss.empty() || !run.validation_loss.empty()) {  // the timed device has no losses
    std::vector<Curve> losses = {{"training loss", kPalette[0], run.loss, false}};
    if (!run.validation_loss.empty()) losses.push_back({"validation loss", kPalette[1], run.validation_loss, true});
    out += figure("Loss", "Mean over the tokens of a step, before its update.", losses, axes("loss", "", false));
    out += figure("Learning rate", "Of each update.", {{"learning rate", kPalette[2], run.learning_rate, false}},
                  axes("rate", "", true));
    out += figure("Gradient norm", "Global, before clipping.", {{"norm", kPalette[5], run.grad_norm, false}},
                  axes("norm", "", true));
  }
  out += figure("Throughput", "Of each step alone.", {{"tokens/s", kPalette[0], run.tokens_per_s, false}},
                axes("tokens/s", "", true));
  out +=
      figure("Bubble of every step",
             "1 - busy / (ranks &#183; makespan): the idle share of the time from the first action's start to the last "
             "action's end.",
             {{"measured", kPalette[0], scaled(run.bubble, 100), false},
              {"predicted", kPalette[3], scaled(run.bubble_predicted, 100), false}},
             axes("bubble", "%", true));
  const std::string resumed = run.resumes.empty() ? "" : " Dotted upright lines: the run was resumed there.";
  return section("Over the steps", "Every step of the run." + resumed, "<div class='charts'>" + out + "</div>\n");
}

std::string idle_section(const Json& measurement) {
  StackedBars bars{.parts = {{"busy", "#c9d4e3"},
                             {"schedule", kPalette[0]},
                             {"imbalance", kPalette[1]},
                             {"jitter", kPalette[6]},
                             {"exposed communication", kPalette[3]}},
                   .rows = {},
                   .values = {},
                   .unit = "ms"};
  Cells rows = {{"rank", "busy ms", "idle", "= schedule", "+ imbalance", "+ jitter", "+ communication", "reduction R",
                 "update U", "after the flush"}};
  for (const Json& rank : array_in(measurement, "ranks")) {
    std::vector<std::string> cells = {with_digits(number_in(rank, "rank"), 6)};
    for (const char* field : {"busy_ms", "idle_ms", "schedule_ms", "imbalance_ms", "jitter_ms", "communication_ms",
                              "reduction_ms", "update_ms", "post_flush_ms"}) {
      cells.push_back(with_digits(number_in(rank, field), 4));
    }
    bars.rows.push_back("rank " + cells.front());
    rows.push_back(std::move(cells));
    bars.values.push_back({number_in(rank, "busy_ms"), number_in(rank, "schedule_ms"), number_in(rank, "imbalance_ms"),
                           number_in(rank, "jitter_ms"), number_in(rank, "communication_ms")});
  }
  if (bars.rows.empty()) return "";
  return section(
      "Idle time explained",
      "Telescoping simulations of the same action lists with free communication: equal mean costs leave the "
      "<b>schedule</b>'s idle time; every stage's own means add <b>imbalance</b>; the measured duration of "
      "every action adds <b>jitter</b>; the measurement itself adds <b>exposed communication</b>. The parts "
      "sum to the idle time; a part can be negative (a slow rank idles less than equal ranks would). R (reduction of "
      "gradients over replicas) and U (clipping and AdamW) follow the flush, the end of the last action, and are not "
      "in it.",
      "<div class='wide'>" + draw_stacked_bars(bars) + "</div>" + html_table(rows));
}

std::string memory_section(const Json& plan) {
  const Json& ranks = array_in(plan, "ranks");
  std::vector<std::string> names;
  for (const Json& rank : ranks) {
    for (const auto& [name, bytes] : object_in(rank, "memory").items()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  if (names.empty()) return "";
  StackedBars bars{.parts = {}, .rows = {}, .values = std::vector<std::vector<double>>(ranks.size()), .unit = "MiB"};
  Cells rows = {{"kind"}};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    bars.rows.push_back("rank " + std::to_string(r));
    rows[0].push_back(bars.rows.back());
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    bars.parts.push_back({names[i], kPalette[i % std::size(kPalette)]});
    rows.push_back({names[i]});
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const double bytes = number_in(object_in(ranks[r], "memory"), names[i].c_str());
      bars.values[r].push_back(bytes / (1 << 20));
      rows.back().push_back(bytes == 0 ? ""
                                       : format_bytes(integer_in(object_in(ranks[r], "memory"), names[i].c_str())));
    }
  }
  rows.push_back({"total"});
  for (const Json& rank : ranks) {
    rows.back().push_back(format_bytes(integer_in(rank, "bytes")));
  }
  return section("Memory per rank", "As planned and allocated before the first step; it never grows.",
                 "<div class='wide'>" + draw_stacked_bars(bars) + "</div>" + html_table(rows));
}

std::string partition_section(const Json& plan, const Json& measurement) {
  const Json& units = array_in(plan, "stage_units");
  const Json& ranks = array_in(plan, "stage_ranks");
  if (units.empty()) return "";
  Cells rows = {{"virtual stage", "rank", "units"}};
  std::vector<std::pair<std::string, Json>> means;  // of the operations that the schedule has
  for (const auto& [op, per_stage] : object_in(measurement, "stage_ms").items()) means.emplace_back(op, per_stage);
  for (const auto& [op, per_stage] : means) rows[0].push_back(op + " ms");
  for (std::size_t s = 0; s < units.size(); ++s) {
    const int first = int_in(units[s], 0), last = int_in(units[s], 1);
    rows.push_back({std::to_string(s), std::to_string(int_in(ranks, s)),
                    std::to_string(last - first) + ": " + unit_name(plan, first) +
                        (last - first > 1 ? " to " + unit_name(plan, last - 1) : "")});
    for (const auto& [op, per_stage] : means) {
      rows.back().push_back(per_stage.is_array() && s < per_stage.size() && per_stage[s].is_number()
                                ? with_digits(per_stage[s].get<double>(), 4)
                                : "");
    }
  }
  const std::string times = means.empty() ? "" : ", and the mean time of its actions in the step shown";
  return section("Partition", "Units of the model in each virtual stage" + times + ".", html_table(rows, 2));
}

std::string timeline_section(const Json& timeline, const Json& measurement) {
  if (measurement.is_null()) return "";
  const std::vector<Timeline> panels = timelines_of(timeline);
  return section(
      "Timeline of step " + with_digits(number_in(measurement, "step"), 15),
      "The step whose makespan is the median of the last steps; hover over an action for its times. It took " +
          summary_of(measurement) + ".",
      panels.empty() ? "<p>Too many actions for a picture here; --svg draws it, --trace shows every one.</p>\n"
                     : "<div class='wide'>" + draw_svg(panels) + "</div>\n");
}

}  // namespace train_gpt

#include "commands/report/report_log.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace train_gpt {
namespace {

using Json = nlohmann::json;

void add(StepSeries& series, const Json& event, const char* field) {
  const auto step = event.find("step");
  const auto value = event.find(field);
  if (step == event.end() || value == event.end() || !step->is_number() || !value->is_number()) return;
  const auto number = step->get<double>();
  while (!series.empty() && series.back().first >= number) series.pop_back();  // a resumed run has taken it again
  series.emplace_back(number, value->get<double>());
}

}  // namespace

LoggedRun read_log(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  LoggedRun run;
  for (std::string line; std::getline(file, line);) {
    const Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) continue;
    const auto kind = event.find("event");
    if (kind == event.end()) continue;
    if (*kind == "validation") add(run.validation_loss, event, "loss");
    if (*kind != "step") continue;
    add(run.loss, event, "loss");
    add(run.bubble, event, "bubble");
    add(run.bubble_predicted, event, "bubble_predicted");
    add(run.ms, event, "ms");
    add(run.tokens_per_s, event, "tokens_per_s");
  }
  return run;
}

double median(const StepSeries& series) {
  if (series.empty()) throw std::logic_error("the median of nothing");
  std::vector<double> values;
  for (const auto& [step, value] : series) values.push_back(value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace train_gpt

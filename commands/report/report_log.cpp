#include "commands/report/report_log.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

void add_to(StepSeries& series, const Json& event, const char* field) {
  const auto step = event.find("step");
  const auto value = event.find(field);
  if (step == event.end() || value == event.end() || !step->is_number() || !value->is_number()) return;
  const auto number = step->get<double>();
  while (!series.empty() && series.back().first >= number) series.pop_back();  // a resumed run took the step again
  series.emplace_back(number, value->get<double>());
}

}  // namespace

void LoggedRun::add(const Json& event) {
  if (!event.is_object()) return;
  const auto found = event.find("event");
  if (found == event.end() || !found->is_string()) return;
  const std::string kind = *found;
  if (kind == "start") {
    if (first_start.is_null()) first_start = event;
    start = event;
    end = nullptr;
  } else if (kind == "resume") {
    const auto at = event.find("step");
    if (at != event.end() && at->is_number()) resumes.push_back(*at);
  } else if (kind == "plan") {
    plan = event;
  } else if (kind == "validation") {
    add_to(validation_loss, event, "loss");
  } else if (kind == "measurement") {
    measurement = event;
  } else if (kind == "timeline") {
    timeline = event;
  } else if (kind == "end" || kind == "stop" || kind == "failure") {
    end = event;
  } else if (kind == "step") {
    step = event;
    add_to(loss, event, "loss");
    add_to(learning_rate, event, "lr");
    add_to(grad_norm, event, "grad_norm");
    add_to(bubble, event, "bubble");
    add_to(bubble_predicted, event, "bubble_predicted");
    add_to(ms, event, "ms");
    add_to(tokens_per_s, event, "tokens_per_s");
  }
}

LoggedRun read_log(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  LoggedRun run;
  for (std::string line; std::getline(file, line);) run.add(Json::parse(line, nullptr, /*allow_exceptions=*/false));
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

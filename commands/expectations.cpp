#include "commands/expectations.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "pipeline/draw/table.h"

namespace train_gpt {
namespace {

constexpr const char* kRight =
    "; write conditions such as makespan<=27,peak<=4: makespan, span (ms), bubble, span-bubble (0.1 or 10%), peak, "
    "pending (micro-batches) or messages, then <=, <, >=, > or =, then a number";

[[noreturn]] void refuse(const std::string& part, const std::string& what) {
  throw std::invalid_argument("--expect '" + part + "' " + what + kRight);
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0.0 : *std::max_element(values.begin(), values.end());
}

double figure_of(const std::string& name, const Simulation& simulation) {
  if (name == "makespan") return simulation.makespan;
  if (name == "span") return simulation.span;
  if (name == "bubble") return simulation.bubble;
  if (name == "span-bubble") return simulation.bubble_span;
  if (name == "peak") return largest(simulation.peak_live);
  if (name == "pending") return largest(simulation.peak_pending_weight);
  return static_cast<double>(simulation.messages);
}

Expectation parse(std::string part) {
  std::erase(part, ' ');
  Expectation result{part, "", "", 0};
  const std::size_t at = part.find_first_of("<>=");
  if (at == std::string::npos) refuse(part, "compares nothing");
  result.figure = part.substr(0, at);
  const std::size_t behind = part.find_first_not_of("<>=", at);
  result.relation = part.substr(at, behind == std::string::npos ? behind : behind - at);
  const std::vector<std::string> figures = {"makespan", "span", "bubble", "span-bubble", "peak", "pending", "messages"};
  const std::vector<std::string> relations = {"<=", "<", ">=", ">", "="};
  if (std::find(figures.begin(), figures.end(), result.figure) == figures.end())
    refuse(part, "is about '" + result.figure + "', which is no figure");
  if (std::find(relations.begin(), relations.end(), result.relation) == relations.end())
    refuse(part, "compares by '" + result.relation + "'");
  std::string number = behind == std::string::npos ? "" : part.substr(behind);
  const bool is_share = result.figure == "bubble" || result.figure == "span-bubble";
  const bool percent = is_share && number.ends_with('%');
  if (percent) number.pop_back();
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), result.value);
  if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(result.value))
    refuse(part, "compares with '" + number + "', which is no number");
  if (percent) result.value /= 100;
  return result;
}

}  // namespace

std::vector<Expectation> parse_expectations(const std::string& text) {
  std::vector<Expectation> all;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) all.push_back(parse(part));
  if (all.empty()) refuse(text, "expects nothing");
  return all;
}

bool is_met(const Expectation& expectation, const Simulation& simulation) {
  const double found = figure_of(expectation.figure, simulation), wanted = expectation.value;
  const double slack = 1e-9 * std::max(1.0, std::abs(wanted));
  if (expectation.relation == "<=") return found <= wanted + slack;
  if (expectation.relation == "<") return found < wanted - slack;
  if (expectation.relation == ">=") return found >= wanted - slack;
  if (expectation.relation == ">") return found > wanted + slack;
  return std::abs(found - wanted) <= slack;
}

std::string verdict(const Expectation& expectation, const Simulation& simulation) {
  return expectation.text + ": " + (is_met(expectation, simulation) ? "yes, " : "no, ") +
         with_digits(figure_of(expectation.figure, simulation), 7);
}

}  // namespace train_gpt

#include "commands/cli/options_value.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace train_gpt {
namespace {

// Levenshtein's distance: insertions, deletions and replacements that turn one word into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

bool parse_number(const std::string& text, double& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return stop == end && error == std::errc() && std::isfinite(value);
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string nearest;
  std::size_t fewest = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const bool continued = name.size() >= 3 && candidate.starts_with(name);
    const std::size_t edits = continued ? 1 : edit_distance(name, candidate);
    if (edits >= fewest || edits >= candidate.size()) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest;
}

std::string either(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

void OptionValue::refuse(const std::string& reason) const {
  throw std::invalid_argument(option_ + ": '" + text_ + "' " + reason);
}

void OptionValue::refuse_unknown(const std::string& name, const std::vector<std::string>& known) const {
  const std::string nearest = nearest_name(name, known);
  throw std::invalid_argument(option_ + ": '" + name + "' is not known" +
                              (nearest.empty() ? "" : ", did you mean " + nearest + "?") + "; give " + either(known));
}

const std::string& OptionValue::text() const {
  if (text_.empty()) refuse("is empty");
  return text_;
}

double OptionValue::number(double least, double most) const {
  const std::string range = std::isinf(most) ? shown(least) + " or more" : shown(least) + " to " + shown(most);
  double value = 0;
  if (!parse_number(text_, value)) refuse("is not a number; give " + range);
  if (value < least || value > most) refuse("is out of range; give " + range);
  return value;
}

double OptionValue::fraction_below_one() const {
  const double value = number(0, 1);
  if (value == 1) refuse("is out of range; give 0 or more and less than 1");
  return value;
}

double OptionValue::positive_number(double most) const {
  const double value = number(0, most);
  if (value == 0) refuse("is out of range; give more than 0");
  return value;
}

bool OptionValue::boolean() const { return choice<bool>({{"true", true}, {"false", false}}); }

std::int64_t OptionValue::bytes() const {
  static const std::vector<std::pair<std::string, double>> units = {{"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
                                                                    {"TB", 1e12},    {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                                                    {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [unit, size] : units) {
    double count = 0;
    if (!text_.ends_with(unit)) continue;
    if (!parse_number(text_.substr(0, text_.size() - unit.size()), count)) break;
    if (count * size < 1 || count * size > 0x1p62) refuse("is out of range; give 1 byte or more, up to 2^62");
    return std::llround(count * size);
  }
  std::int64_t whole = 0;
  const char* end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(text_.data(), end, whole);
  if (stop != end || error != std::errc())
    refuse("is not a number of bytes; give for example 8000000000, 512MiB or 80GB");
  if (whole < 1) refuse("is out of range; give 1 byte or more");
  return whole;
}

std::vector<std::string> OptionValue::words() const {
  std::vector<std::string> words(1);
  for (const char c : text_) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back().push_back(c);
    }
  }
  for (const std::string& word : words) {
    if (word.empty()) refuse("has an empty place; give values separated by single commas");
  }
  return words;
}

std::vector<int> OptionValue::integers(int least) const {
  std::vector<int> values;
  for (std::string& word : words()) values.push_back(part(std::move(word)).integer<int>(least));
  return values;
}

std::vector<double> OptionValue::numbers(double least, double most) const {
  std::vector<double> values;
  for (std::string& word : words()) values.push_back(part(std::move(word)).number(least, most));
  return values;
}

}  // namespace train_gpt

#include "commands/cli/options_value.h"

#include <algorithm>
#include <cctype>
#include <charconv>
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

// The double nearest to the decimal number: rounding a long double would sometimes give the next one.
std::optional<double> plain_number(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (stop != end || error != std::errc() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string range_text(double least, double most) {
  return std::isinf(most) ? shown(least) + " or more" : shown(least) + " to " + shown(most);
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

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
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
  const std::string range = range_text(least, most);
  std::optional<double> value = plain_number(text_);
  if (!value) {
    const std::optional<ParsedQuantity> parsed = parse_quantity(text_, Quantity::count);
    if (!parsed) refuse("is not a number; give " + range);
    value = static_cast<double>(parsed->value);
  }
  if (*value < least || *value > most) refuse("is out of range; give " + range);
  return *value;
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
  const std::optional<ParsedQuantity> parsed = parse_quantity(text_, Quantity::bytes);
  const bool part_of_a_byte = parsed && !parsed->has_unit && parsed->value != std::floor(parsed->value);
  if (!parsed || part_of_a_byte) refuse(std::string("is not a number of bytes; give ") + examples_of(Quantity::bytes));
  if (parsed->value < 1 || parsed->value > 0x1p62L) refuse("is out of range; give 1 byte or more, up to 2^62");
  return std::llround(parsed->value);
}

double OptionValue::quantity(Quantity kind, const char* unit_name, long double unit, double least, double most) const {
  const std::optional<ParsedQuantity> parsed = parse_quantity(text_, kind);
  if (!parsed) {
    refuse(std::string("is not a ") + (kind == Quantity::duration ? "time" : "rate") + "; give a number of " +
           unit_name + ", or one with its unit, " + examples_of(kind));
  }
  const double value = parsed->has_unit ? static_cast<double>(parsed->value / unit)
                                        : plain_number(text_).value_or(static_cast<double>(parsed->value));
  if (value < least || value > most) refuse("is out of range; give " + range_text(least, most) + " " + unit_name);
  return value;
}

double OptionValue::seconds(double least, double most) const {
  return quantity(Quantity::duration, "seconds", 1, least, most);
}

double OptionValue::milliseconds(double least, double most) const {
  return quantity(Quantity::duration, "ms", 1e-3L, least, most);
}

bool OptionValue::is_time() const {
  const std::optional<ParsedQuantity> parsed = parse_quantity(text_, Quantity::duration);
  return parsed && parsed->has_unit;
}

double OptionValue::gigabytes_per_second(double least, double most) const {
  return quantity(Quantity::bandwidth, "GB/s", 1e9, least, most);
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

std::vector<double> OptionValue::gigabytes_per_second_list(double least, double most) const {
  std::vector<double> values;
  for (std::string& word : words()) values.push_back(part(std::move(word)).gigabytes_per_second(least, most));
  return values;
}

std::vector<double> OptionValue::positive_numbers(double most) const {
  std::vector<double> values;
  for (std::string& word : words()) values.push_back(part(std::move(word)).positive_number(most));
  return values;
}

std::vector<double> OptionValue::milliseconds_list(double least, double most) const {
  std::vector<double> values;
  for (std::string& word : words()) values.push_back(part(std::move(word)).milliseconds(least, most));
  return values;
}

}  // namespace train_gpt

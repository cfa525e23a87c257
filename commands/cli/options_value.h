// Turns the text that was given to an option into a value. Each function throws std::invalid_argument naming the
// option, the text and what would be right.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "commands/cli/quantity.h"

namespace train_gpt {

class OptionValue {
 public:
  OptionValue(std::string option, std::string text) : option_(std::move(option)), text_(std::move(text)) {}

  // Not empty.
  const std::string& text() const;
  // Any text, also an empty one.
  const std::string& raw() const { return text_; }

  // A whole number in [least, most]: 1000, 1e3 or 1k.
  template <typename Integer>
  Integer integer(Integer least, Integer most = std::numeric_limits<Integer>::max()) const;

  // A finite number in [least, most].
  double number(double least, double most = std::numeric_limits<double>::infinity()) const;
  // A finite number in [0, 1).
  double fraction_below_one() const;
  // A finite number in (0, most].
  double positive_number(double most = std::numeric_limits<double>::infinity()) const;

  bool boolean() const;  // true or false

  // Whole bytes, with or without a unit: 8000000, 512MiB, 80GB.
  std::int64_t bytes() const;

  // A time in [least, most] seconds: 90s, 15min, 3h50m, 03:50:00; a number alone means seconds.
  double seconds(double least, double most) const;
  // The same in milliseconds; a number alone means milliseconds.
  double milliseconds(double least, double most) const;
  // True if the text is a time with a unit, not a number alone: "15min", not "15".
  bool is_time() const;
  // A rate in [least, most] GB/s: 25, 25GB/s, 200Gbit/s; a number alone means GB/s.
  double gigabytes_per_second(double least, double most) const;

  // Comma lists of at least one value.
  std::vector<std::string> words() const;
  std::vector<int> integers(int least) const;
  std::vector<double> positive_numbers(double most) const;
  std::vector<double> milliseconds_list(double least, double most) const;
  std::vector<double> gigabytes_per_second_list(double least, double most) const;

  // One of several names, in any case.
  template <typename Enum>
  Enum choice(const std::vector<std::pair<const char*, Enum>>& choices) const;

  // Throws: "--option: 'text' <reason>".
  [[noreturn]] void refuse(const std::string& reason) const;
  // Throws for a name that is not in `known`, and suggests the nearest of them.
  [[noreturn]] void refuse_unknown(const std::string& name, const std::vector<std::string>& known) const;

 private:
  OptionValue part(std::string text) const { return {option_, std::move(text)}; }
  // In units of `unit` times parse_quantity()'s; a number alone is in these units.
  double quantity(Quantity kind, const char* unit_name, long double unit, double least, double most) const;

  std::string option_;  // "--steps"
  std::string text_;
};

// The name that the user probably meant by `name`: the one with the fewest edits, if they are few; else empty.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// True for names that differ in case at most.
bool same_letters(std::string_view a, std::string_view b);

// "a, b or c".
std::string either(const std::vector<std::string>& names);

template <typename Integer>
Integer OptionValue::integer(Integer least, Integer most) const {
  static_assert(std::is_integral_v<Integer>);
  const bool bounded = most != std::numeric_limits<Integer>::max();
  const std::string range =
      bounded ? std::to_string(least) + " to " + std::to_string(most) : std::to_string(least) + " or more";
  const std::optional<ParsedQuantity> parsed = parse_quantity(text_, Quantity::count);
  if (!parsed || parsed->value != std::floor(parsed->value)) refuse("is not a whole number; give " + range);
  if (parsed->value < static_cast<long double>(least) || parsed->value > static_cast<long double>(most))
    refuse("is out of range; give " + range);
  return static_cast<Integer>(parsed->value);
}

template <typename Enum>
Enum OptionValue::choice(const std::vector<std::pair<const char*, Enum>>& choices) const {
  std::vector<std::string> known;
  for (const auto& [name, value] : choices) {
    if (same_letters(text_, name)) return value;
    known.emplace_back(name);
  }
  refuse_unknown(text_, known);
}

}  // namespace train_gpt

// The text that was given to an option, turned into a value. Each function throws std::invalid_argument naming the
// option, the text and what would be right.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace train_gpt {

class OptionValue {
 public:
  OptionValue(std::string option, std::string text) : option_(std::move(option)), text_(std::move(text)) {}

  // Not empty.
  const std::string& text() const;
  // Any text, also none.
  const std::string& raw() const { return text_; }

  // A whole number in [least, most], without anything behind it.
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

  // Comma lists of at least one value.
  std::vector<std::string> words() const;
  std::vector<int> integers(int least) const;
  std::vector<double> numbers(double least, double most) const;

  // One of several names.
  template <typename Enum>
  Enum choice(const std::vector<std::pair<const char*, Enum>>& choices) const;

  // Throws: "--option: 'text' <reason>".
  [[noreturn]] void refuse(const std::string& reason) const;
  // The same for a name that is not among `known`, with the nearest of them.
  [[noreturn]] void refuse_unknown(const std::string& name, const std::vector<std::string>& known) const;

 private:
  OptionValue part(std::string text) const { return {option_, std::move(text)}; }

  std::string option_;  // "--steps"
  std::string text_;
};

// The name that a person who typed `name` probably meant: the one with the fewest edits, if they are few; else nothing.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// "a, b or c".
std::string either(const std::vector<std::string>& names);

template <typename Integer>
Integer OptionValue::integer(Integer least, Integer most) const {
  static_assert(std::is_integral_v<Integer>);
  const bool bounded = most != std::numeric_limits<Integer>::max();
  const std::string range =
      bounded ? std::to_string(least) + " to " + std::to_string(most) : std::to_string(least) + " or more";
  Integer value{};
  const char* end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(text_.data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) refuse("is not a whole number; give " + range);
  if (error == std::errc::result_out_of_range || value < least || value > most)
    refuse("is out of range; give " + range);
  return value;
}

template <typename Enum>
Enum OptionValue::choice(const std::vector<std::pair<const char*, Enum>>& choices) const {
  std::vector<std::string> known;
  for (const auto& [name, value] : choices) {
    if (text_ == name) return value;
    known.emplace_back(name);
  }
  refuse_unknown(text_, known);
}

}  // namespace train_gpt

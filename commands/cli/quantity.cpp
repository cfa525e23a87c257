#include "commands/cli/quantity.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>

namespace train_gpt {
namespace {

struct Unit {
  std::string_view name;
  long double size;
};

constexpr Unit kCountUnits[] = {{"k", 1e3L}, {"K", 1e3L}, {"M", 1e6L}, {"G", 1e9L}, {"B", 1e9L}, {"T", 1e12L}};
constexpr Unit kByteUnits[] = {{"b", 1},         {"kb", 1e3L},     {"mb", 1e6L},     {"gb", 1e9L},    {"tb", 1e12L},
                               {"kib", 0x1p10L}, {"mib", 0x1p20L}, {"gib", 0x1p30L}, {"tib", 0x1p40L}};
constexpr Unit kDurationUnits[] = {{"us", 1e-6L}, {"ms", 1e-3L}, {"s", 1},     {"sec", 1},
                                   {"min", 60},   {"m", 60},     {"h", 3600L}, {"d", 86400L}};
constexpr Unit kBandwidthUnits[] = {
    {"B/s", 1},           {"kB/s", 1e3L},       {"MB/s", 1e6L},       {"GB/s", 1e9L},       {"TB/s", 1e12L},
    {"KiB/s", 0x1p10L},   {"MiB/s", 0x1p20L},   {"GiB/s", 0x1p30L},   {"TiB/s", 0x1p40L},   {"bit/s", 0.125L},
    {"kbit/s", 1e3L / 8}, {"Mbit/s", 1e6L / 8}, {"Gbit/s", 1e9L / 8}, {"Tbit/s", 1e12L / 8}};

std::span<const Unit> units_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::count:
      return kCountUnits;
    case Quantity::bytes:
      return kByteUnits;
    case Quantity::duration:
      return kDurationUnits;
    case Quantity::bandwidth:
      return kBandwidthUnits;
  }
  return {};
}

// The number at the start of `text`, which is shortened by it.
std::optional<long double> take_number(std::string_view& text) {
  long double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return value;
}

// The unit at the start of `text`, up to the next digit.
std::optional<long double> take_unit(std::string_view& text, Quantity quantity) {
  const std::size_t end = std::min(text.find_first_of("0123456789."), text.size());
  std::string name(text.substr(0, end));
  if (quantity == Quantity::bytes) {
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const Unit& unit : units_of(quantity)) {
    if (unit.name != name) continue;
    text.remove_prefix(end);
    return unit.size;
  }
  return std::nullopt;
}

// [D-]HH:MM:SS, HH:MM with a leading D-, or MM:SS, as `man sbatch` defines --time.
std::optional<ParsedQuantity> parse_clock(std::string_view text) {
  const std::size_t dash = text.find('-');
  const bool days = dash != std::string_view::npos;
  std::string_view rest = days ? text.substr(dash + 1) : text;
  long double seconds = 0;
  int fields = 0;
  const auto add_field = [&](std::string_view digits) {
    int value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || stop != digits.data() + digits.size() || value < 0) return false;
    if (fields > 0 && value >= 60) return false;
    seconds = 60 * seconds + value;
    ++fields;
    return true;
  };
  for (std::size_t colon = rest.find(':'); colon != std::string_view::npos; colon = rest.find(':')) {
    if (!add_field(rest.substr(0, colon))) return std::nullopt;
    rest.remove_prefix(colon + 1);
  }
  if (!add_field(rest) || fields < 2 || fields > 3) return std::nullopt;
  if (!days) return ParsedQuantity{seconds, true};
  if (fields == 2) seconds *= 60;  // hours and minutes
  std::string_view day_text = text.substr(0, dash);
  const std::optional<long double> day_count = take_number(day_text);
  if (!day_count || !day_text.empty() || *day_count < 0 || std::floor(*day_count) != *day_count) return std::nullopt;
  return ParsedQuantity{seconds + 86400 * *day_count, true};
}

}  // namespace

std::optional<ParsedQuantity> parse_quantity(std::string_view text, Quantity quantity) {
  if (quantity == Quantity::duration && text.find(':') != std::string_view::npos) return parse_clock(text);
  const std::optional<long double> first = take_number(text);
  if (!first) return std::nullopt;
  if (text.empty()) return ParsedQuantity{*first, false};
  std::optional<long double> unit = take_unit(text, quantity);
  if (!unit) return std::nullopt;
  ParsedQuantity parsed{*first * *unit, true};
  // Further terms, each of a smaller unit than the one before: 3h50m.
  while (!text.empty()) {
    if (quantity != Quantity::duration) return std::nullopt;
    const long double larger = *unit;
    const std::optional<long double> next = take_number(text);
    if (!next || *next < 0) return std::nullopt;
    unit = take_unit(text, quantity);
    if (!unit || *unit >= larger) return std::nullopt;
    parsed.value += *next * *unit;
  }
  if (!std::isfinite(parsed.value)) return std::nullopt;
  return parsed;
}

const char* examples_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::count:
      return "for example 1000, 1e3 or 10k";
    case Quantity::bytes:
      return "for example 8000000000, 512MiB or 80GB";
    case Quantity::duration:
      return "for example 90s, 1.5ms, 15min, 3h50m or 03:50:00";
    case Quantity::bandwidth:
      return "for example 25GB/s or 200Gbit/s";
  }
  return "";
}

}  // namespace train_gpt

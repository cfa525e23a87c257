#include "commands/cli/wording.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace train_gpt {
namespace {

struct Unit {
  std::int64_t seconds;
  const char* name;
};
constexpr Unit kUnits[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};

std::int64_t whole_seconds(double seconds) {
  constexpr double kThousandYears = 3.2e10;
  return std::llround(std::clamp(seconds, 0.0, kThousandYears));
}

}  // namespace

std::string counted(std::int64_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

std::string duration_text(double seconds) {
  const std::int64_t all = whole_seconds(seconds);
  for (std::size_t i = 0; i < std::size(kUnits); ++i) {
    const std::int64_t count = all / kUnits[i].seconds;
    if (count == 0 && i + 1 < std::size(kUnits)) continue;
    std::string text = std::to_string(count) + " " + kUnits[i].name;
    if (i + 1 == std::size(kUnits)) return text;
    const std::int64_t rest = all % kUnits[i].seconds / kUnits[i + 1].seconds;
    return rest == 0 ? text : text + " " + std::to_string(rest) + " " + kUnits[i + 1].name;
  }
  return "";
}

std::string rough_duration(double seconds) {
  for (const Unit& unit : kUnits) {
    const double count = seconds / static_cast<double>(unit.seconds);
    if (count >= 1.5 || unit.seconds == 1) return std::to_string(whole_seconds(std::max(1.0, count))) + " " + unit.name;
  }
  return "";
}

std::string clock_text(double seconds) {
  const std::int64_t all = whole_seconds(seconds);
  char text[40];
  if (all >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(all / 3600),
                  static_cast<long long>(all / 60 % 60), static_cast<long long>(all % 60));
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(all / 60), static_cast<long long>(all % 60));
  }
  return text;
}

std::string grouped_digits(std::int64_t n) {
  std::string text = std::to_string(n);
  const std::size_t sign = n < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > sign + 3;) text.insert(at -= 3, ",");
  return text;
}

}  // namespace train_gpt

#include "settings.h"

#include <cstdlib>
#include <cstring>

#include "report.h"

namespace emulator {
namespace {

// The choice that an environment variable names, or `otherwise` where it is unset.
template <class Choice>
Choice choice(const char* variable, Choice otherwise, std::initializer_list<std::pair<const char*, Choice>> names) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return otherwise;
  std::string known;
  for (const auto& [name, meaning] : names) {
    if (std::strcmp(value, name) == 0) return meaning;
    known += std::string(known.empty() ? "" : ", ") + name;
  }
  fail("setting", std::string(variable) + "=" + value + " is not one of " + known);
}

double number(const char* variable, double otherwise) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return otherwise;
  char* end = nullptr;
  const double result = std::strtod(value, &end);
  if (*end != '\0' || result < 0) fail("setting", std::string(variable) + "=" + value + " is not a number >= 0");
  return result;
}

Settings read_environment() {
  Settings settings;
  settings.thread_order =
      choice("EMULATOR_ORDER", settings.thread_order,
             {{"forward", ThreadOrder::forward}, {"reverse", ThreadOrder::reverse}, {"random", ThreadOrder::random}});
  settings.stream_order =
      choice("EMULATOR_STREAMS", settings.stream_order,
             {{"issue", StreamOrder::issue}, {"latest", StreamOrder::latest}, {"random", StreamOrder::random}});
  settings.seed = static_cast<std::uint64_t>(number("EMULATOR_SEED", static_cast<double>(settings.seed)));
  settings.watchdog_seconds = number("EMULATOR_WATCHDOG", settings.watchdog_seconds);
  settings.device_count = static_cast<int>(number("EMULATOR_DEVICES", settings.device_count));
  settings.bank_conflicts = number("EMULATOR_BANKS", 0) != 0;
  settings.cublaslt_epilogues = number("EMULATOR_EPILOGUES", 1) != 0;
  return settings;
}

}  // namespace

Settings& settings() {
  static Settings current;
  static const bool read = [] {
    current = read_environment();
    return true;
  }();
  static_cast<void>(read);
  return current;
}

std::string repeat_with() {
  const char* const threads[] = {"forward", "reverse", "random"};
  const char* const streams[] = {"issue", "latest", "random"};
  const Settings& now = settings();
  return std::string("EMULATOR_ORDER=") + threads[static_cast<int>(now.thread_order)] +
         " EMULATOR_STREAMS=" + streams[static_cast<int>(now.stream_order)] +
         " EMULATOR_SEED=" + std::to_string(now.seed);
}

}  // namespace emulator

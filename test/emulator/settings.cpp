#include "settings.h"

#include <cstdio>
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

NcclFault nccl_fault() {
  const char* text = std::getenv("EMULATOR_NCCL_FAULT");
  if (text == nullptr) return {};
  NcclFault fault;
  char kind[8] = "";
  char call[32] = "";
  const bool complete = std::sscanf(text, "%7[a-z]:%d:%31[A-Za-z]:%d", kind, &fault.rank, call, &fault.count) == 4;
  fault.call = call;
  fault.kind = std::strcmp(kind, "break") == 0  ? NcclFault::Kind::broken
               : std::strcmp(kind, "stop") == 0 ? NcclFault::Kind::stop
               : std::strcmp(kind, "kill") == 0 ? NcclFault::Kind::kill
                                                : NcclFault::Kind::none;
  if (!complete || fault.kind == NcclFault::Kind::none) {
    fail("setting",
         std::string("EMULATOR_NCCL_FAULT=") + text + " is not like break:1:ncclSend:20, stop:.. or kill:..");
  }
  return fault;
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
  if (const char* card = std::getenv("EMULATOR_CARD")) settings.card = card;
  settings.memory_gib = number("EMULATOR_MEMORY", settings.memory_gib);
  settings.old_driver = number("EMULATOR_OLD_DRIVER", 0) != 0;
  settings.exclusive = number("EMULATOR_EXCLUSIVE", 0) != 0;
  settings.nccl_fault = nccl_fault();
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

std::vector<int> visible_devices() {
  const int count = settings().device_count;
  std::vector<int> visible;
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int i = 0; i < count; ++i) visible.push_back(i);
    return visible;
  }
  for (char* end = nullptr; *list != '\0'; list = *end == ',' ? end + 1 : end) {
    const long device = std::strtol(list, &end, 10);
    if (end == list || (*end != ',' && *end != '\0') || device < 0 || device >= count) break;
    visible.push_back(static_cast<int>(device));
  }
  return visible;
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

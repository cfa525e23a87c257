#include "report.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "block.h"
#include "settings.h"

namespace emulator {
namespace {

// This process's command line, for "repeat with".
std::string command_line() {
  std::string command;
  if (std::FILE* file = std::fopen("/proc/self/cmdline", "rb")) {
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) command += c == '\0' ? ' ' : static_cast<char>(c);
    std::fclose(file);
  }
  return command;
}

std::string report_text(const std::string& name, const std::string& message) {
  std::string text = "emulator: error [" + name + "]: " + message + "\n";
  text += describe_position();
  text += "  repeat  " + repeat_with() + " " + command_line() + "\n";
  return text;
}

}  // namespace

void fail(const std::string& name, const std::string& message) {
  // One write, so that the reports of several ranks do not mix. stdout first: it may say what was going on.
  std::fflush(stdout);
  const std::string text = report_text(name, message);
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) std::_Exit(kExitStatus);
  std::_Exit(kExitStatus);
}

std::string source_line(const void* code_address) {
  char fallback[32];
  std::snprintf(fallback, sizeof fallback, "%p", code_address);
  Dl_info info;
  if (dladdr(code_address, &info) == 0 || info.dli_fname == nullptr) return fallback;
  // A return address points past the call: one byte less is inside it.
  const auto offset = reinterpret_cast<std::uintptr_t>(code_address) - 1;
  const auto base = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  char command[4096];
  for (const std::uintptr_t address : {offset - base, offset}) {  // position independent, or linked at its address
    std::snprintf(command, sizeof command, "addr2line -C -f -e '%s' 0x%lx 2>/dev/null", info.dli_fname, address);
    std::FILE* pipe = popen(command, "r");
    if (pipe == nullptr) return fallback;
    char function[2048] = "";
    char line[2048] = "";
    const bool read =
        std::fgets(function, sizeof function, pipe) != nullptr && std::fgets(line, sizeof line, pipe) != nullptr;
    pclose(pipe);
    if (!read || line[0] == '?') continue;
    std::string place(line);
    std::string name(function);
    while (!place.empty() && place.back() == '\n') place.pop_back();
    while (!name.empty() && name.back() == '\n') name.pop_back();
    if (const std::size_t note = place.find(" (discriminator"); note != std::string::npos) place.resize(note);
    return place + " (" + name + ")";
  }
  return fallback;
}

}  // namespace emulator

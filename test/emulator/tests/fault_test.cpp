// Runs every planted fault in a child process, in every thread and stream order, and demands that it is reported by its
// name:
//
//   fault_test-BUILD [--seeds N] [fault]       all faults, or one
//   fault_test-BUILD --run fault               one fault in this process, to look at its report
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "faults.h"

#if defined(EMULATOR_RACE)
constexpr int kBuild = 2;
#elif defined(EMULATOR_ASAN)
constexpr int kBuild = 1;
#else
constexpr int kBuild = 0;
#endif

void demand_right(bool right) {
  if (right) return;
  std::fprintf(stderr, "error [wrong-result]\n");
  std::_Exit(1);
}

namespace {

// Faults that must show in every order are tried in these first ones; those that may hide, in all of them until they
// show.
constexpr std::size_t kOrdersForAlways = 4;

struct Order {
  const char* threads;
  const char* streams;
  int seed;
};

// Runs the fault with this order; returns what it wrote to stderr.
std::string run_child(const char* program, const char* fault, const Order& order) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    close(pipe_ends[0]);
    setenv("EMULATOR_ORDER", order.threads, 1);
    setenv("EMULATOR_STREAMS", order.streams, 1);
    setenv("EMULATOR_SEED", std::to_string(order.seed).c_str(), 1);
    setenv("EMULATOR_WATCHDOG", "0.2", 1);
    execl(program, program, "--run", fault, nullptr);
    std::_Exit(127);
  }
  close(pipe_ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    output.append(buffer, static_cast<std::size_t>(n));
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) output += "\nended by signal " + std::to_string(WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) output += "\nended as if nothing were wrong";
  return output;
}

bool has_name(const std::string& output, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return output.find("error [" + name + "]") != std::string::npos; });
}

// True if the fault is noticed as often, and under the names, as this build must.
bool check(const char* program, const Fault& fault, const std::vector<Order>& orders) {
  const Notice& notice = kBuild == 0 ? fault.plain : kBuild == 1 ? fault.asan : fault.race;
  if (notice.when == Notice::When::never) return true;
  std::size_t noticed = 0;
  std::size_t tries = 0;
  std::string unexpected;
  for (const Order& order : orders) {
    if (notice.when == Notice::When::always && ++tries > kOrdersForAlways) break;
    const std::string output = run_child(program, fault.name, order);
    if (has_name(output, notice.names)) {
      ++noticed;
      if (notice.when == Notice::When::sometimes) break;
    } else if (notice.when == Notice::When::always || output.find("as if nothing") == std::string::npos) {
      unexpected =
          std::string(order.threads) + "/" + order.streams + " seed " + std::to_string(order.seed) + ": " + output;
      break;
    }
  }
  const bool right = unexpected.empty() && noticed > 0;
  if (!right) {
    std::printf("FAILED  %s: expected error [%s]%s, got\n%s\n", fault.name, notice.names.front().c_str(),
                notice.when == Notice::When::sometimes ? " in some order" : "",
                unexpected.empty() ? "nothing in any order" : unexpected.c_str());
  }
  return right;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<Fault> faults = kernel_faults();
  for (const Fault& fault : host_faults()) faults.push_back(fault);
  if (count == 3 && std::strcmp(arguments[1], "--run") == 0) {
    for (const Fault& fault : faults) {
      if (std::strcmp(fault.name, arguments[2]) == 0) fault.run();
    }
    return 0;
  }
  int seeds = 10;
  const char* only = nullptr;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--seeds") == 0 && i + 1 < count) {
      seeds = std::atoi(arguments[++i]);
    } else {
      only = arguments[i];
    }
  }
  std::vector<Order> orders = {{"forward", "issue", 1}, {"reverse", "latest", 1}};
  for (int seed = 1; seed <= seeds; ++seed) orders.push_back({"random", "random", seed});
  int failures = 0;
  int checked = 0;
  for (const Fault& fault : faults) {
    if (only != nullptr && std::strcmp(only, fault.name) != 0) continue;
    ++checked;
    if (!check(arguments[0], fault, orders)) ++failures;
  }
  std::printf("planted faults: %d checked in %zu orders, %d not noticed as they must be\n", checked, orders.size(),
              failures);
  std::printf("%d passed, %d failed\n", checked - failures, failures);
  return failures == 0 && checked > 0 ? 0 : 1;
}

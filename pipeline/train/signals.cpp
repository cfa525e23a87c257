#include "pipeline/train/signals.h"

#include <atomic>
#include <ctime>

namespace train_gpt {
namespace {

// Lock-free, as a handler needs it.
std::atomic<int> requested = 0;
std::atomic<int> demanded = 0;
std::atomic<long> first_interrupt_ms = 0;  // 0: none yet

long now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}

void note_wish(int signal) {
  int none = 0;
  requested.compare_exchange_strong(none, signal);
  if (signal != SIGINT) return;
  long never = 0;
  if (first_interrupt_ms.compare_exchange_strong(never, now_ms())) return;
  if (now_ms() - first_interrupt_ms > 1000) demanded = signal;
}

void note_demand(int signal) { demanded = signal; }

void listen(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : kStopSignals) sigaction(signal, &action, nullptr);
}

}  // namespace

const char* signal_name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "a signal";
  }
}

void listen_for_wish_to_stop() { listen(note_wish); }

void listen_for_end() { listen(note_demand); }

void stop_listening() {
  listen(SIG_DFL);
  if (requested != 0) raise(requested);
}

int stop_request() { return requested; }

int demand_to_end() { return demanded; }

}  // namespace train_gpt

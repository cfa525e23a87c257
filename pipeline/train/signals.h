// How a rank takes signals.
//
// To a training run SIGTERM, SIGINT, SIGUSR1, SIGUSR2 and SIGHUP all request a stop from which it can resume: mpirun
// forwards some of them, batch systems send others, and a signal to every process of a job reaches each rank twice. So
// repeats change nothing, except a second SIGINT more than a second after the first: a person insists. All other
// commands end at these signals, with a message that says what the rank was doing.
#pragma once

#include <array>
#include <csignal>

namespace train_gpt {

inline constexpr std::array<int, 5> kStopSignals = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};

// "SIGTERM".
const char* signal_name(int signal);

// From this call on signals are noted, as a stop request or a demand to end. main calls it first, before it knows the
// command: blocking signals instead would not do, since threads of libraries would get them. MPI_Init installs handlers
// of its own that call the earlier ones; call one of these functions again after it.
void listen_for_wish_to_stop();
void listen_for_end();
// Restores the program's first handlers, for commands that do not listen. A signal noted before takes effect now.
void stop_listening();

// The first signal that was a stop request; 0: none.
int stop_request();
// The signal that demanded an immediate end; 0: none.
int demand_to_end();

}  // namespace train_gpt

// The meaning of signals to a rank.
//
// To a training run SIGTERM, SIGINT, SIGUSR1, SIGUSR2 and SIGHUP are all a request to stop where it can go on
// later: mpirun forwards some of them, batch systems send others, and a signal to every process of a job reaches each
// rank twice. So repeats change nothing, except a second SIGINT more than a second after the first: a person who
// insists. To all other commands these signals are the end, with a message that says what the rank was doing.
#pragma once

#include <array>
#include <csignal>

namespace train_gpt {

inline constexpr std::array<int, 5> kStopSignals = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};

// "SIGTERM".
const char* signal_name(int signal);

// From here on they are noted, one way or the other. The first thing that main does, before it knows the command:
// blocking them would not do, since libraries have threads already, which would get them. MPI_Init puts handlers of its
// own in place, which call those of before; call one of these again after it.
void listen_for_wish_to_stop();
void listen_for_end();
// As they were when the program began, for commands that listen to nothing. A signal that came since then arrives now.
void stop_listening();

// The first signal that was a stop request; 0: none.
int stop_request();
// The signal that demands an end without delay; 0: none.
int demand_to_end();

}  // namespace train_gpt

// Notices that a job is deadlocked, and nothing else: slow ranks are not stuck ranks. The ranks of a host keep a board
// in shared memory, where each says when it last asked whether something arrived and when something last moved. Only
// when every rank has asked within the last second and none has moved for EMULATOR_NCCL_WATCHDOG seconds (default 5;
// four times as long for a rank that only polls, since it may be working in between) is it a deadlock: then every rank
// reports what it is stuck in, and the job ends. A rank that computes or sleeps is not asking. Ranks on several hosts
// are not watched.
#pragma once

#include <string>

namespace emulator::nccl {

// From the interposed MPI_Init and MPI_Finalize.
void open_watch();
void close_watch();

void note_progress();
// Something was asked for and had not arrived. Reports and ends the process when the job is stuck.
void note_idle();

// Sets what is printed for a stuck rank beside its streams. The communicators do.
void set_stuck_report(std::string (*report)());
// Prints `text`, gives `peer` (a world rank, or -1: every rank) up to 5 s to print its own side, and ends the process
// with kExitStatus.
[[noreturn]] void report_both_ends(const std::string& name, const std::string& text, int peer);

}  // namespace emulator::nccl

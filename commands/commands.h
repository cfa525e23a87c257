// The commands. Each returns the exit status, and throws std::invalid_argument for bad input (status 2) or another
// std::exception (status 1).
#pragma once

#include <iostream>

#include "commands/cli/options.h"

namespace train_gpt {

// These start MPI and run on every rank of the job.
int run_train(const Options& options);
int run_evaluate(const Options& options);
int run_generate(const Options& options);
int run_profile(const Options& options);  // measures what units and messages cost on this machine

// These run on one rank.

// Text files to token files. Throws as documented in data/prepare.h.
int run_prepare(const Options& options);
// Converts a model between llm.c's file and Hugging Face's folder, with its tokenizer.
int run_convert(const Options& options);
// Shows what every rank of a run is doing, or did last.
int run_status(const Options& options);
// Asks a run that is alive for a checkpoint.
int run_checkpoint(const Options& options);
// Draws report.html of a run from its log.
int run_report(const Options& options);
// Estimates from records.bin what a step of a run would take if one thing were different.
int run_whatif(const Options& options);
// Plans without training, also for machines that one does not have: partition, schedule, memory and prediction; with
// --json the plan event of log.jsonl instead.
int run_plan(const Options& options);
int run_plan_ranks(const Options& options);  // its --ranks
// Simulates the requested schedules and prints to `out` a table that compares them, details if there is only one,
// timelines with --ascii; with --json one array and nothing else. Names what it left out, too, but on `notices` with
// --json. Writes the files of --svg and --csv. Returns 1 if --expect is not met. Throws std::invalid_argument if a
// named schedule cannot exist for these sizes or if none meets --activation-limit, std::runtime_error if a file cannot
// be written.
int run_simulate(const Options& options, std::ostream& out = std::cout, std::ostream& notices = std::cerr);

}  // namespace train_gpt

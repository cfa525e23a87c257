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
int run_profile(const Options& options);  // what units and messages cost here

// These run on one rank.

// Text files to token files. Throws as data/prepare.h says.
int run_prepare(const Options& options);
// A model between llm.c's file and Hugging Face's folder, with its tokenizer.
int run_convert(const Options& options);
// Where every rank of a run is, or was when it ended.
int run_status(const Options& options);
// Asks a run that is alive for a checkpoint.
int run_checkpoint(const Options& options);
// Draws report.html of a run from its log.
int run_report(const Options& options);
// Estimates from records.bin what a step of a run would take if one thing were different.
int run_whatif(const Options& options);
// Everything short of training, for machines that one does not have: partition, schedule, memory and prediction;
// with --json the plan event of log.jsonl instead.
int run_plan(const Options& options);
int run_plan_ranks(const Options& options);  // its --ranks
// Simulates every schedule that was asked for and prints them to `out`: a table that compares them, details if there is
// one only, timelines with --ascii; with --json one array and nothing else. What had to be left out goes there, too,
// but to `notices` with --json. Files of --svg and --csv are written. Returns 1 if --expect is not met. Throws
// std::invalid_argument if a schedule that was named cannot exist for these sizes or if nothing is left under
// --activation-limit, std::runtime_error if a file cannot be written.
int run_simulate(const Options& options, std::ostream& out = std::cout, std::ostream& notices = std::cerr);

}  // namespace train_gpt

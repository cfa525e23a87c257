// train_gpt: the story of the program.
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "commands/cli/help.h"
#include "commands/cli/options.h"
#include "commands/cli/options_table.h"
#include "commands/cli/version.h"
#include "commands/commands.h"
#include "commands/run/launch.h"
#include "commands/run/session.h"
#include "commands/run/stopping.h"
#include "pipeline/draw/markup.h"

namespace {

using namespace train_gpt;

constexpr int kFailure = 1;   // while running
constexpr int kBadInput = 2;  // usage, or a file that is not what it should be

int run(const Options& options) {
  switch (options.command) {
    case Command::simulate:
      return run_simulate(options);
    case Command::plan:
      return run_plan(options);
    case Command::profile:
      return run_profile(options);
    case Command::prepare:
      return run_prepare(options);
    case Command::convert:
      return run_convert(options);
    case Command::train:
      return run_train(options);
    case Command::evaluate:
      return run_evaluate(options);
    case Command::generate:
      return run_generate(options);
    case Command::checkpoint:
      return run_checkpoint(options);
    case Command::status:
      return run_status(options);
    case Command::report:
      return run_report(options);
    case Command::whatif:
      return run_whatif(options);
  }
  throw std::logic_error("a command without a case");
}

// What was printed may not have arrived: a full disk behind a redirection shows only here.
int finish(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "train_gpt: error: standard output cannot be written; is the disk full?\n");
  return status == 0 ? kFailure : status;
}

int report(const std::exception& error, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "train_gpt: error: %s\n", printable(error.what()).c_str());
  return status;
}

// Of the command line. Every rank finds the same, unless the launcher gave them different ones; then those without a
// fault wait for the others.
int refuse(const std::invalid_argument& error) {
  const Launch launch = launch_from_environment();
  if (launch.ranks == 1) return report(error, kBadInput);
  try {
    return fail_together(error.what(), kBadInput);
  } catch (const std::exception&) {  // the launcher's ranks are not MPI's
    return launch.rank == 0 ? report(error, kBadInput) : kBadInput;
  }
}

}  // namespace

int main(int argc, char** argv) {
  listen_for_wish_to_stop();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that reaches the limit of ulimit -f is an error of its writer
  const bool first_rank = launch_from_environment().rank == 0;
  Options options;
  try {
    options = parse_options({argv + 1, argv + argc});
  } catch (const std::invalid_argument& error) {
    return refuse(error);
  }
  if (options.command != Command::train) stop_listening();
  if (options.help) {
    if (first_rank) std::fputs(help_text(options).c_str(), stdout);
    return finish(0);
  }
  if (options.version) {
    if (first_rank) std::fputs(version_text().c_str(), stdout);
    return finish(0);
  }
  if (!find_command(options.command).launched && !first_rank) return 0;  // no MPI: one rank does the work
  try {
    return finish(run(options));
  } catch (const QuietExit& exit) {
    return exit.status;
  } catch (const std::invalid_argument& error) {
    return report(error, kBadInput);
  } catch (const std::exception& error) {
    return report(error, kFailure);
  }
}

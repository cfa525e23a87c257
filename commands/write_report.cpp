// `train_gpt report DIR`: the page of a run, made from its log.
#include "commands/report/report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "commands/commands.h"
#include "pipeline/draw/markup.h"
#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

// Of a rank on another host only what it wrote is known here.
bool seems_alive(const RankState& state) { return !state.finished && state.failure.empty() && !is_gone(state); }

}  // namespace

int run_report(const Options& options) {
  const std::string directory = options.run.output.empty() ? kLatestRun : options.run.output;
  const std::string log = directory + "/log.jsonl";
  if (!std::filesystem::exists(log)) {
    throw std::invalid_argument("'" + directory +
                                "' has no log.jsonl: give the folder of a training run, as in: train_gpt " +
                                "report out/run-1");
  }
  const LoggedRun run = read_log(log);
  const std::vector<RankState> states = read_states(directory);
  const bool alive = std::any_of(states.begin(), states.end(), seems_alive);
  const std::string page = directory + "/report.html";
  replace_file(page, html_report(run, alive ? RunCondition::running : RunCondition::over));
  std::printf("report written to %s\n", printable(page).c_str());
  return 0;
}

}  // namespace train_gpt

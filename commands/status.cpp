#include "commands/commands.h"

#include <cstdio>
#include <stdexcept>

#include "pipeline/draw/markup.h"
#include "pipeline/draw/table.h"
#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

std::string condition(const RankState& state) {
  if (state.finished) return "finished";
  if (!state.failure.empty()) return "failed";
  if (state.host != host_name()) return "on another host";
  const double silence = monotonic_seconds() - state.beat;
  if (silence < 0) return "gone (before a reboot)";
  if (is_gone(state)) return "gone";
  char text[64];
  std::snprintf(text, sizeof text, "last sign of life %.1f s ago", silence);
  return text;
}

}  // namespace

int run_status(const Options& options) {
  const std::string directory = options.run.output.empty() ? kLatestRun : options.run.output;
  const std::vector<RankState> states = read_states(directory);
  if (states.empty()) {
    throw std::invalid_argument("no run has left its state in '" + directory +
                                "': give the folder of a training run, as in: train_gpt status out/run-1");
  }
  std::vector<std::vector<std::string>> rows = {{"rank", "host", "process", "step", "state", "doing"}};
  for (const RankState& state : states) {
    rows.push_back({std::to_string(state.rank) + " of " + std::to_string(state.ranks), state.host,
                    std::to_string(state.process), state.step < 0 ? "-" : std::to_string(state.step), condition(state),
                    state.failure.empty() ? state.doing : state.failure});
  }
  std::printf("%s", printable(draw_table(rows)).c_str());
  return 0;
}

}  // namespace train_gpt

#include "commands/cli/options_table.h"

#include <algorithm>

#include "commands/cli/options_groups.h"
#include "commands/cli/other_names.h"

namespace train_gpt {
namespace {

std::vector<OptionSpec> make_table() {
  std::vector<OptionSpec> table;
  const auto add = [&table](OptionGroup group, const std::vector<OptionSpec>& options) {
    for (const OptionSpec& option : options) table.emplace_back(option).group = group;
  };
  add(OptionGroup::data, data_options());
  add(OptionGroup::model, model_options());
  add(OptionGroup::batch, batch_options());
  add(OptionGroup::optimizer, optimizer_options());
  add(OptionGroup::run, run_options());
  add(OptionGroup::pipeline, pipeline_options());
  add(OptionGroup::device, device_options());
  add(OptionGroup::costs, cost_options());
  add(OptionGroup::costs, cluster_options());
  add(OptionGroup::output, output_options());
  add(OptionGroup::testing, testing_options());
  add(OptionGroup::prepare, prepare_options());
  add(OptionGroup::convert, convert_options());
  add(OptionGroup::generate, generate_options());
  return table;
}

}  // namespace

const char* to_string(OptionGroup group) {
  constexpr const char* kNames[] = {"Data", "Model",  "Batch",   "Optimizer", "Run",     "Pipeline", "Device",
                                    "Cost", "Output", "Testing", "Prepare",   "Convert", "Generate"};
  return kNames[static_cast<std::size_t>(group)];
}

const std::vector<OptionSpec>& option_table() {
  static const std::vector<OptionSpec> table = make_table();
  return table;
}

const OptionSpec* find_option(Command command, const std::string& name) {
  const auto is_meant = [&](const OptionSpec& spec) {
    if (!spec.belongs_to(command)) return false;
    const std::vector<std::string> others = other_names_of(spec.name);
    return name == spec.name || std::find(others.begin(), others.end(), name) != others.end();
  };
  const std::vector<OptionSpec>& table = option_table();
  const auto found = std::find_if(table.begin(), table.end(), is_meant);
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> option_names(Command command) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : option_table()) {
    if (spec.belongs_to(command)) names.emplace_back(spec.name);
  }
  return names;
}

const std::vector<CommandSpec>& command_table() {
  static const std::vector<CommandSpec> table = {
      {Command::train, "train", "train a model (the default command)", true},
      {Command::evaluate, "evaluate", "loss of a model file on --val-data", true},
      {Command::simulate, "simulate", "run schedules on paper: makespan, bubbles, memory, timelines"},
      {Command::plan, "plan", "everything short of training: partition, schedule, memory, prediction"},
      {Command::profile, "profile", "measure what the units of a model and the messages between ranks cost", true},
      {Command::prepare, "prepare", "turn text files into token files, with a tokenizer that is given or learned"},
      {Command::convert, "convert", "a model between llm.c's file and Hugging Face's folder"},
      {Command::generate, "generate", "sample text from a model file", true},
      {Command::report, "report", "draw report.html anew from the log of a run, also of one that lives or was killed",
       false, "output"},
      {Command::whatif, "whatif", "what a step of a run would take if something were otherwise, from its records",
       false, "output"},
      {Command::status, "status", "the last action of every rank of a run, also after it was killed", false, "output"},
      {Command::checkpoint, "checkpoint", "ask a run that is alive for a checkpoint", false, "output"},
  };
  return table;
}

const CommandSpec& find_command(Command command) {
  const std::vector<CommandSpec>& table = command_table();
  return *std::find_if(table.begin(), table.end(), [&](const CommandSpec& spec) { return spec.command == command; });
}

}  // namespace train_gpt

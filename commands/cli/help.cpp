#include "commands/cli/help.h"

#include <algorithm>
#include <vector>

#include "commands/cli/options_declaration.h"
#include "commands/cli/options_table.h"

namespace train_gpt {
namespace {

std::string usage_of(const CommandSpec& command) {
  const OptionSpec* bare = command.bare_word != nullptr ? find_option(command.command, command.bare_word) : nullptr;
  const std::string words = bare != nullptr ? " [" + std::string(bare->argument) + "]" : "";
  return (command.launched ? "mpirun -n RANKS ./train_gpt " : "./train_gpt ") + std::string(command.name) + words +
         " [--option value ...]";
}

std::string command_list() {
  std::string text = "A pipeline-parallel GPT trainer.\n\nCommands:\n";
  std::size_t widest = 0;
  for (const CommandSpec& spec : command_table()) widest = std::max(widest, std::string(spec.name).size());
  for (const CommandSpec& spec : command_table()) {
    const std::string name = spec.name;
    text += "  " + name + std::string(widest + 2 - name.size(), ' ') + spec.help + "\n";
  }
  return text + "\n`./train_gpt COMMAND --help` shows the options of a command. Those of train:\n\n";
}

std::string notes_on(Command command) {
  std::string text;
  if (command == Command::simulate) {
    text +=
        "\nModel, batch and precision only tell how large a message is: they need --cost-bandwidth (except "
        "--micro-batches).\n";
  }
  const std::vector<OptionSpec>& table = option_table();
  const bool takes_patterns = std::any_of(table.begin(), table.end(), [&](const OptionSpec& spec) {
    return spec.belongs_to(command) && !spec.is_flag() && std::string(spec.argument) == "GLOB";
  });
  text += "\nNumbers may be written as 10000, 1e4 or 10k; sizes as 512MiB or 4GB; times as 1.5ms, 15min or 3h50m.\n";
  if (takes_patterns) text += "\nQuote patterns, so that the shell does not expand them: 'data/*.bin'.\n";
  return text;
}

}  // namespace

std::string help_text(const Options& options) {
  const CommandSpec& command = find_command(options.command);
  cxxopts::Options declared = declare_options(options.command, DeclaredFor::help);
  declared.set_width(100);
  std::vector<std::string> groups;
  for (const OptionSpec& spec : option_table()) {
    if (!spec.belongs_to(options.command)) continue;
    if (groups.empty() || groups.back() != to_string(spec.group)) groups.emplace_back(to_string(spec.group));
  }
  groups.emplace_back("Help");
  std::string text = options.command_named ? std::string(command.name) + ": " + command.help + "\n\n" : command_list();
  text += "Usage: " + usage_of(command) + "\n";
  // cxxopts begins with the program's name and a usage line of its own.
  const std::string laid_out = declared.help(groups);
  return text + laid_out.substr(laid_out.find("\n\n") + 1) + notes_on(options.command);
}

}  // namespace train_gpt

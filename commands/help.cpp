#include "commands/help.h"

#include <vector>

#include "commands/options_declaration.h"
#include "commands/options_table.h"

namespace train_gpt {
namespace {

std::string summary_of(Command command) {
  for (const CommandSpec& spec : command_table()) {
    if (spec.command == command) return spec.help;
  }
  return "";
}

std::string usage_of(Command command) {
  const std::string name = to_string(command);
  const bool launched = command == Command::train || command == Command::evaluate || command == Command::profile ||
                        command == Command::generate;
  const std::string words = command == Command::status ? " [DIR]" : " [--option value ...]";
  return (launched ? "mpirun -n RANKS ./train_gpt " : "./train_gpt ") + name + words;
}

std::string command_list() {
  std::string text = "A pipeline-parallel GPT trainer.\n\nCommands:\n";
  for (const CommandSpec& spec : command_table()) {
    const std::string name = spec.name;
    text += "  " + name + std::string(10 - name.size(), ' ') + spec.help + "\n";
  }
  return text + "\n`./train_gpt COMMAND --help` shows the options of a command. Those of train:\n\n";
}

}  // namespace

std::string help_text(const Options& options) {
  cxxopts::Options declared = declare_options(options.command);
  declared.set_width(100);
  std::vector<std::string> groups;
  for (const OptionSpec& spec : option_table()) {
    if (!spec.belongs_to(options.command)) continue;
    if (groups.empty() || groups.back() != to_string(spec.group)) groups.emplace_back(to_string(spec.group));
  }
  groups.emplace_back("Help");
  std::string text = options.command_named ? "" : command_list();
  text += to_string(options.command) + std::string(": ") + summary_of(options.command) + "\n\n";
  text += "Usage: " + usage_of(options.command) + "\n";
  // cxxopts begins with the program's name and a usage line of its own.
  const std::string laid_out = declared.help(groups);
  return text + laid_out.substr(laid_out.find("\n\n") + 1) +
         "\nQuote patterns, so that the shell does not expand them.\n";
}

}  // namespace train_gpt

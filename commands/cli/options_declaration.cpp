#include "commands/cli/options_declaration.h"

#include <memory>
#include <string>

#include "commands/cli/options_table.h"
#include "commands/cli/other_names.h"

namespace train_gpt {

cxxopts::Options declare_options(Command command, DeclaredFor purpose) {
  cxxopts::Options declared("train_gpt");
  declared.allow_unrecognised_options();  // they are refused with the commands that have them
  for (const OptionSpec& spec : option_table()) {
    if (!spec.belongs_to(command)) continue;
    cxxopts::OptionAdder add = declared.add_options(to_string(spec.group));
    // Values stay text here: the table says what a text has to be, with the message if it is not.
    std::shared_ptr<cxxopts::Value> value = cxxopts::value<std::string>();
    if (spec.is_flag() && purpose == DeclaredFor::help) value = cxxopts::value<bool>();
    if (spec.is_flag() && purpose == DeclaredFor::parsing) value = value->implicit_value(kFlagGiven);
    if (spec.default_value != nullptr) value = value->default_value(spec.default_value);
    std::string names = spec.name;
    for (const std::string& other : other_names_of(spec.name)) names += "," + other;
    add(names, spec.help, value, spec.is_flag() ? "" : spec.argument);
  }
  const CommandSpec& command_spec = find_command(command);
  if (command_spec.bare_word != nullptr) declared.parse_positional(command_spec.bare_word);
  declared.show_positional_help();
  declared.add_options("Help")("help", "show this")("version", "show version and compiler");
  return declared;
}

}  // namespace train_gpt

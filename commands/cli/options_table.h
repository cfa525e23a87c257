// Every option of every command in one table: the parser, --help and the messages about unknown options all read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commands/cli/options.h"
#include "commands/cli/options_value.h"

namespace train_gpt {

// The headings of --help, in this order.
enum class OptionGroup : std::uint8_t {
  data,
  model,
  batch,
  optimizer,
  run,
  pipeline,
  device,
  costs,
  output,
  testing,
  prepare,
  convert,
  generate
};
const char* to_string(OptionGroup group);

// A set of commands, one bit each.
using CommandSet = std::uint32_t;
constexpr CommandSet only(Command command) { return CommandSet{1} << static_cast<unsigned>(command); }

struct OptionSpec {
  const char* name;           // without the dashes
  const char* argument;       // the name of its value in --help; nullptr: a flag, which takes none
  const char* default_value;  // as one would type it; nullptr: none, or given in `help`
  CommandSet commands;        // that take it. A name may occur twice with different commands
  const char* help;
  void (*set)(Options& options, const OptionValue& value);
  OptionGroup group = OptionGroup::data;

  bool is_flag() const { return argument == nullptr; }
  bool belongs_to(Command command) const { return (commands & only(command)) != 0; }
};

const std::vector<OptionSpec>& option_table();

struct CommandSpec {
  Command command;
  const char* name;
  const char* help;
  bool launched = false;            // mpirun starts it on several ranks
  const char* bare_word = nullptr;  // the option whose value may follow without its name: status DIR
};
const std::vector<CommandSpec>& command_table();
const CommandSpec& find_command(Command command);

// Finds an option by its own name or by that of another trainer; nullptr if this command has no such option.
const OptionSpec* find_option(Command command, const std::string& name);

std::vector<std::string> option_names(Command command);

}  // namespace train_gpt

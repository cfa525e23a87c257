#include "commands/cli/options.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "commands/cli/options_check.h"
#include "commands/cli/options_declaration.h"
#include "commands/cli/options_table.h"
#include "commands/cli/options_value.h"
#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

using Words = std::vector<std::string>;

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

Command command_named(const std::string& word) {
  Words known;
  for (const CommandSpec& spec : command_table()) {
    if (word == spec.name) return spec.command;
    known.emplace_back(spec.name);
  }
  const std::string nearest = nearest_name(word, known);
  refuse("'" + word + "' is not a command" + (nearest.empty() ? "" : ", did you mean " + nearest + "?") + "; give " +
         either(known) + ", then --options; quote patterns such as --train-data 'data/*.bin'");
}

std::string help_hint(Command command) { return "see train_gpt " + std::string(to_string(command)) + " --help"; }

[[noreturn]] void refuse_unknown_option(Command command, const std::string& name) {
  Words takers;
  for (const CommandSpec& spec : command_table()) {
    if (find_option(spec.command, name) != nullptr) takers.emplace_back(spec.name);
  }
  if (!takers.empty()) {
    refuse("--" + name + " is not an option of " + to_string(command) + ", but of " + either(takers) + "; " +
           help_hint(command));
  }
  const std::string nearest = nearest_name(name, option_names(command));
  refuse("unknown option --" + name + (nearest.empty() ? "" : ", did you mean --" + nearest + "?") + "; " +
         help_hint(command));
}

[[noreturn]] void refuse_leftover(Command command, const std::string& word) {
  for (const CommandSpec& spec : command_table()) {
    if (word == spec.name) refuse("the command comes first: train_gpt " + word + " --options");
  }
  if (word.size() > 1 && word[0] == '-' && word.find_first_not_of("-0123456789.") != std::string::npos) {
    refuse("'" + word + "': options are written with two dashes, as in --steps 10; " + help_hint(command));
  }
  refuse("unexpected word '" + word + "': every option takes one value. Quote patterns, so that the shell does not " +
         "expand them: --train-data 'data/*.bin'");
}

// cxxopts would take the last of two equal options, "--steps --shuffle" for a value, and lists of leftover words in
// silence. Refuses those, and gives each option and each value a word of its own: cxxopts does not take every text
// behind an equals sign.
Words separate_words(Command command, const Words& words) {
  Words separated;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--") || word == "--") refuse_leftover(command, word);
    const std::size_t equals = word.find('=');
    const bool has_value = equals != std::string::npos;
    const std::string name = word.substr(2, has_value ? equals - 2 : std::string::npos);
    const OptionSpec* spec = find_option(command, name);
    if (spec == nullptr) refuse_unknown_option(command, name);
    if (!seen.insert(name).second) refuse("--" + name + " is given twice; give it once");
    separated.push_back("--" + name);
    if (spec->is_flag()) {
      if (has_value) refuse("--" + name + " takes no value, but '" + word.substr(equals + 1) + "' is given");
      continue;
    }
    const std::string needs = "--" + name + " needs a value (" + spec->argument + ")";
    if (has_value) {
      separated.push_back(word.substr(equals + 1));
    } else if (i + 1 == words.size()) {
      refuse(needs);
    } else if (words[i + 1].starts_with("--")) {
      refuse(needs + ", but '" + words[i + 1] + "' follows; write --" + name +
             "=VALUE if the value starts with dashes");
    } else {
      separated.push_back(words[++i]);
    }
  }
  return separated;
}

cxxopts::ParseResult parse_words(Command command, const Words& words) {
  std::vector<const char*> pointers = {"train_gpt"};
  for (const std::string& word : words) pointers.push_back(word.c_str());
  try {
    return declare_options(command).parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const cxxopts::exceptions::exception& error) {
    refuse(std::string(error.what()) + "; " + help_hint(command));
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  Words words = arguments;
  if (!words.empty() && !words.front().starts_with("-")) {
    options.command = command_named(words.front());
    options.command_named = true;
    words.erase(words.begin());
  }
  const auto asks_for_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (std::any_of(words.begin(), words.end(), asks_for_help)) {
    options.help = true;
    return options;
  }
  if (options.command == Command::status && !words.empty() && !words.front().starts_with("-")) {
    options.run.output = words.front();
    words.erase(words.begin());
  }
  const cxxopts::ParseResult parsed = parse_words(options.command, separate_words(options.command, words));
  std::set<std::string> given;
  for (const cxxopts::KeyValue& argument : parsed.arguments()) {
    const OptionSpec* spec = find_option(options.command, argument.key());
    spec->set(options, OptionValue("--" + argument.key(), argument.value()));
    given.insert(argument.key());
  }
  check_together(options, given);
  return options;
}

int PipelineOptions::chunks_for(const std::string& name) const {
  if (name == "auto") return 0;
  return takes_chunks(name) || chunks == default_chunks(name) ? chunks : 0;
}

int PipelineOptions::group_size_for(const std::string& name) const {
  return name != "auto" && takes_group_size(name) ? group_size : 0;
}

const char* to_string(Command command) {
  const std::vector<CommandSpec>& table = command_table();
  return std::find_if(table.begin(), table.end(), [&](const CommandSpec& spec) { return spec.command == command; })
      ->name;
}

}  // namespace train_gpt

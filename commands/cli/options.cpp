#include "commands/cli/options.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <iterator>
#include <set>
#include <stdexcept>

#include "commands/cli/options_check.h"
#include "commands/cli/options_declaration.h"
#include "commands/cli/options_table.h"
#include "commands/cli/options_value.h"
#include "commands/cli/other_names.h"
#include "data/data_folder.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/flushless.h"

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
  const std::string answer = instead_of(name);
  if (!answer.empty()) refuse("--" + name + " is not an option here: " + answer + "; " + help_hint(command));
  if (!takers.empty()) {
    refuse("--" + name + " is not an option of " + to_string(command) + ", but of " + either(takers) + "; " +
           help_hint(command));
  }
  const std::string nearest = nearest_name(name, option_names(command));
  refuse("unknown option --" + name + (nearest.empty() ? "" : ", did you mean --" + nearest + "?") + "; " +
         help_hint(command));
}

// Refuses a word that cxxopts did not take.
[[noreturn]] void refuse_leftover(Command command, const std::string& word, const Words& words) {
  if (word.starts_with("--") && word != "--") refuse_unknown_option(command, word.substr(2, word.find('=') - 2));
  for (const CommandSpec& spec : command_table()) {
    if (word == spec.name) refuse("the command comes first: train_gpt " + word + " --options");
  }
  if (word.size() == 2 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0) {
    // cxxopts takes -steps for the options -s, -t, .. and returns the first of them.
    const auto whole = std::find_if(words.begin(), words.end(), [&](const auto& it) { return it.starts_with(word); });
    refuse("'" + *whole + "': options are written with two dashes, as in --steps 10; " + help_hint(command));
  }
  refuse("unexpected word '" + word + "': every option takes one value. Quote patterns, so that the shell does not " +
         "expand them: --train-data 'data/*.bin'");
}

std::string needs_value(const OptionSpec& spec) {
  return std::string("--") + spec.name + " needs a value (" + spec.argument + ")";
}

cxxopts::ParseResult parse_words(Command command, const Words& words) {
  std::vector<const char*> pointers = {"train_gpt"};
  for (const std::string& word : words) pointers.push_back(word.c_str());
  try {
    return declare_options(command, DeclaredFor::parsing).parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const cxxopts::exceptions::missing_argument&) {  // of the last word
    refuse(needs_value(*find_option(command, words.back().substr(2))));
  }
}

// Refuses what cxxopts accepts in silence: a repeated option, another option's name as a value, a value for a flag,
// words that belong to no option.
void check_parsed(Command command, const cxxopts::ParseResult& parsed, const Words& words) {
  std::set<std::string> seen;
  for (const cxxopts::KeyValue& argument : parsed.arguments()) {
    const std::string& name = argument.key();
    const std::string& value = argument.value();
    const OptionSpec& spec = *find_option(command, name);
    if (!seen.insert(name).second) refuse("--" + name + " is given twice; give it once");
    if (spec.is_flag() && value != kFlagGiven) refuse("--" + name + " takes no value, but '" + value + "' is given");
    if (value.starts_with("--") && std::find(words.begin(), words.end(), value) != words.end()) {
      refuse(needs_value(spec) + ", but '" + value + "' follows; write --" + name +
             "=VALUE if the value starts with dashes");
    }
  }
  if (std::find(words.begin(), words.end(), "--") != words.end()) refuse_leftover(command, "--", words);
  if (!parsed.unmatched().empty()) refuse_leftover(command, parsed.unmatched().front(), words);
}

// plan --ranks holds what is given.
void set_held(LayoutOptions& layouts, const std::set<std::string>& given) {
  layouts.holds_replicas = given.contains("data-parallel");
  layouts.holds_zero = given.contains("zero");
  layouts.holds_rows = given.contains("micro-batch-size");
  layouts.holds_order = given.contains("rank-order");
  layouts.holds_schedule = given.contains("schedule");
  layouts.holds_recompute = given.contains("recompute");
}

// --global-batch-size ROWS is another way to give m.
void set_micro_batches(BatchOptions& batch, const std::set<std::string>& given) {
  if (batch.global_rows == 0) return;
  if (given.contains("micro-batches")) {
    refuse("--global-batch-size and --micro-batches contradict each other: both set m; give one of them");
  }
  const std::int64_t rows_of_one = batch.micro_batch_size * batch.data_parallel;
  if (batch.global_rows % rows_of_one != 0) {
    const std::int64_t below = batch.global_rows / rows_of_one * rows_of_one;
    refuse("--global-batch-size " + std::to_string(batch.global_rows) + " is not a multiple of " +
           std::to_string(rows_of_one) + " rows (--micro-batch-size " + std::to_string(batch.micro_batch_size) +
           " x --data-parallel " + std::to_string(batch.data_parallel) + "): give " +
           (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + rows_of_one));
  }
  batch.micro_batches = OptionValue("--global-batch-size", std::to_string(batch.global_rows / rows_of_one))
                            .integer<int>(1, kLargestMicroBatches);
  batch.micro_batches_given = true;
}

// `train_gpt help simulate` and `train_gpt --version`, which are not commands.
bool asks_for_text(Options& options, Words& words) {
  const auto any_is = [&](std::initializer_list<const char*> asked) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return std::find(asked.begin(), asked.end(), word) != asked.end();
    });
  };
  if (!words.empty() && words.front() == "help") {
    words.front() = "--help";
    if (words.size() > 1 && !words[1].starts_with("-")) std::swap(words[0], words[1]);
  }
  if (!words.empty() && !words.front().starts_with("-")) {
    options.command = command_named(words.front());
    options.command_named = true;
    words.erase(words.begin());
  }
  options.help = any_is({"--help", "-h"});
  options.version = !options.help && any_is({"--version", "-V"});
  return options.help || options.version;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  Words words;
  std::transform(arguments.begin(), arguments.end(), std::back_inserter(words), canonical_option);
  if (asks_for_text(options, words)) return options;
  const cxxopts::ParseResult parsed = parse_words(options.command, words);
  check_parsed(options.command, parsed, words);
  std::set<std::string> given;
  for (const cxxopts::KeyValue& argument : parsed.arguments()) {
    find_option(options.command, argument.key())->set(options, OptionValue("--" + argument.key(), argument.value()));
    given.insert(argument.key());
  }
  if (options.layouts.ranks > 0) {
    set_held(options.layouts, given);
  } else {
    set_micro_batches(options.batch, given);
  }
  const bool reads_model = options.command == Command::generate || options.command == Command::evaluate;
  if (reads_model && !given.contains("init")) options.model.init_file = kLatestRun;
  if (!options.data.folder.empty()) {
    const DataFolder folder = find_data_folder(options.data.folder);
    options.data.train_data = folder.train;
    options.data.val_data = folder.validation;
  }
  check_together(options, given);
  return options;
}

int PipelineOptions::chunks_for(const std::string& name) const {
  if (name == "auto" || is_flushless(name)) return 0;
  return takes_chunks(name) || chunks == default_chunks(name) ? chunks : 0;
}

int PipelineOptions::group_size_for(const std::string& name) const {
  return name != "auto" && !is_flushless(name) && takes_group_size(name) ? group_size : 0;
}

const char* to_string(Command command) {
  const std::vector<CommandSpec>& table = command_table();
  return std::find_if(table.begin(), table.end(), [&](const CommandSpec& spec) { return spec.command == command; })
      ->name;
}

}  // namespace train_gpt

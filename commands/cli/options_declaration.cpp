#include "commands/cli/options_declaration.h"

#include <memory>
#include <string>

#include "commands/cli/options_table.h"

namespace train_gpt {

cxxopts::Options declare_options(Command command) {
  cxxopts::Options declared("train_gpt");
  for (const OptionSpec& spec : option_table()) {
    if (!spec.belongs_to(command)) continue;
    cxxopts::OptionAdder add = declared.add_options(to_string(spec.group));
    // Values stay text here: what a text has to be, and the message if it is not, is the table's business.
    std::shared_ptr<cxxopts::Value> value = cxxopts::value<std::string>();
    if (spec.is_flag()) value = cxxopts::value<bool>();
    if (spec.default_value != nullptr) value = value->default_value(spec.default_value);
    add(spec.name, spec.help, value, spec.is_flag() ? "" : spec.argument);
  }
  declared.add_options("Help")("help", "show this");
  return declared;
}

}  // namespace train_gpt

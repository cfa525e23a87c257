// The options that a command line gave, for checking which of them go together.
#pragma once

#include <initializer_list>
#include <set>
#include <stdexcept>
#include <string>

namespace train_gpt {

using Given = std::set<std::string>;  // names, without dashes

[[noreturn]] inline void refuse(const std::string& message) { throw std::invalid_argument(message); }

// The first of `names` that was given, with dashes; empty if none was.
inline std::string first_given(const Given& given, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (given.contains(name)) return std::string("--") + name;
  }
  return "";
}

}  // namespace train_gpt

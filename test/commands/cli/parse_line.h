// A command line as one string.
#pragma once

#include <string>
#include <vector>

#include "commands/cli/options.h"

namespace train_gpt {

// The words of a command line, split at spaces.
inline Options parse(const std::string& line) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  while (begin < line.size()) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    if (end > begin) words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return parse_options(words);
}

}  // namespace train_gpt

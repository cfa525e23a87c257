// File name patterns, expanded here rather than by the shell, so that every rank has the same list.
#pragma once

#include <string>
#include <vector>

namespace train_gpt {

// The files that `pattern` names (glob(3) with {a,b} and ~), sorted by bytes, without directories and duplicates. The
// name of an existing file means that file, whatever characters it has. Throws std::invalid_argument naming `option`
// and the pattern if no file matches.
std::vector<std::string> expand_glob(const std::string& pattern, const std::string& option);

}  // namespace train_gpt

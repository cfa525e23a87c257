#include "commands/run/command_line.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>

namespace train_gpt {
namespace {

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("-_./=,:+@%", c) != nullptr;
  });
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// The words without some options and their values, which follow after = or as the next word.
std::string without(std::span<const std::string> words, const std::vector<std::string>& options) {
  std::string text;
  bool skips = false;
  for (const std::string& word : words) {
    if (std::exchange(skips, false)) continue;
    const auto names = [&](const std::string& option) { return word == option || word.starts_with(option + "="); };
    if (std::any_of(options.begin(), options.end(), names)) {
      skips = word.find('=') == std::string::npos;
      continue;
    }
    text += (text.empty() ? "" : " ") + quoted(word);
  }
  return text;
}

}  // namespace

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string command_that_goes_on(const std::vector<std::string>& words, int ranks, const std::string& folder) {
  std::vector<std::string> kept = words;
  std::erase(kept, "--overwrite");
  return (ranks > 1 ? "mpirun -n " + std::to_string(ranks) + " " : "") + without(kept, {"--output", "--resume"}) +
         " --output " + quoted(folder) + " --resume latest";
}

std::string command_otherwise(const std::vector<std::string>& words, int ranks,
                              const std::vector<std::string>& replaced, const std::string& added) {
  std::vector<std::string> kept = words, left_out = {"--output", "--resume"};
  std::erase(kept, "--overwrite");
  left_out.insert(left_out.end(), replaced.begin(), replaced.end());
  return (ranks > 1 ? "mpirun -n " + std::to_string(ranks) + " " : "") + without(kept, left_out) +
         (added.empty() ? "" : " " + added);
}

std::string options_for_all(const std::vector<std::string>& words) {
  return words.empty() ? "" : without(std::span(words).subspan(1), {"--threads"});
}

}  // namespace train_gpt

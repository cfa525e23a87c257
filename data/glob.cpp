#include "data/glob.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace train_gpt {
namespace {

bool is_directory(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<std::string> matches(const std::string& pattern) {
  struct stat status {};
  if (stat(pattern.c_str(), &status) == 0) return {pattern};
  glob_t found{};
  const std::unique_ptr<glob_t, void (*)(glob_t*)> release(&found, globfree);
  const int result = glob(pattern.c_str(), GLOB_NOSORT | GLOB_BRACE | GLOB_TILDE, nullptr, &found);
  if (result == GLOB_NOSPACE) throw std::runtime_error("out of memory while expanding '" + pattern + "'");
  if (result != 0) return {};
  return {found.gl_pathv, found.gl_pathv + found.gl_pathc};
}

}  // namespace

std::vector<std::string> expand_glob(const std::string& pattern, const std::string& option) {
  std::vector<std::string> files = matches(pattern);
  if (files.empty()) {
    throw std::invalid_argument(option + ": no file matches '" + pattern +
                                "'; give a file or a quoted pattern such as '" + "data/*.bin'");
  }
  files.erase(std::remove_if(files.begin(), files.end(), is_directory), files.end());
  if (files.empty()) {
    throw std::invalid_argument(option + ": '" + pattern + "' names a directory, not files; write '" + pattern + "/*'");
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace train_gpt

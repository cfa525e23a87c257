// The published action lists under test/pipeline/schedule/golden: see the README there.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "pipeline/schedule/csv.h"
#include "pipeline/schedule/schedule.h"

namespace train_gpt {

struct GoldenList {
  std::string title;  // "megatron_interleaved p=4 m=8 v=2 g=8"
  int p = 0, m = 0, v = 0;
  int g = 0;  // 0: not said
  std::string csv;

  Schedule schedule() const { return parse_schedule_csv(csv, title); }
};

inline std::vector<GoldenList> golden_lists(const std::string& family) {
  const std::filesystem::path path = std::filesystem::path(__FILE__).parent_path() / "golden" / (family + ".txt");
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path.string() + ": run tests from the root of the repository");
  std::vector<GoldenList> lists;
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("# ")) {
      lists.back().csv += line + "\n";
      continue;
    }
    GoldenList& list = lists.emplace_back();
    list.title = family + line.substr(1);
    std::istringstream words(line.substr(2));
    for (std::string word; words >> word;) {
      const int value = std::stoi(word.substr(2));
      (word[0] == 'p' ? list.p : word[0] == 'm' ? list.m : word[0] == 'v' ? list.v : list.g) = value;
    }
  }
  return lists;
}

}  // namespace train_gpt

// The events that a run wrote to its log.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace train_gpt::test {

// The events of one kind in the text of a log.jsonl, in order.
inline std::vector<nlohmann::json> events(const std::string& log, const std::string& kind) {
  std::vector<nlohmann::json> found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json event = nlohmann::json::parse(line);
    if (event.at("event") == kind) found.push_back(std::move(event));
  }
  return found;
}

}  // namespace train_gpt::test

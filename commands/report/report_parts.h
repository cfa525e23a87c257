// The parts of a report: tables and charts, each made from events of the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commands/report/report_log.h"

namespace train_gpt {

// A field of an event; `otherwise` if it is missing or of another type.
double number_in(const nlohmann::ordered_json& event, const char* field, double otherwise = 0);
// The same as a whole number, within +-2^53.
std::int64_t integer_in(const nlohmann::ordered_json& event, const char* field);
std::string text_in(const nlohmann::ordered_json& event, const char* field);

// A table whose first row is the header; the first column and column `names` hold names.
using Cells = std::vector<std::vector<std::string>>;
std::string html_table(const Cells& rows, std::size_t names = 0);

std::string section(const std::string& title, const std::string& explanation, const std::string& body);

// Loss, learning rate, gradient norm, throughput and bubble over the steps.
std::string curves_over_steps(const LoggedRun& run);
// From the events "measurement", "plan" and "timeline"; empty without them.
std::string idle_section(const nlohmann::ordered_json& measurement);
std::string memory_section(const nlohmann::ordered_json& plan);
std::string partition_section(const nlohmann::ordered_json& plan, const nlohmann::ordered_json& measurement);
std::string timeline_section(const nlohmann::ordered_json& timeline, const nlohmann::ordered_json& measurement);

}  // namespace train_gpt

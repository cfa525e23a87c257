#include "data/multiple_choice.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace train_gpt {
namespace {

using Json = nlohmann::json;

std::string text_in(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : "";
}

// Describes what is wrong with a row; empty if nothing is.
std::string read_row(const Json& row, Question& question) {
  if (!row.is_object()) return "is no JSON object";
  question.context = row.contains("ctx") ? text_in(row, "ctx") : text_in(row, "context");
  if (!row.contains("ctx") && !row.contains("context")) return "has no \"ctx\" and no \"context\"";
  if (!row.contains("endings") || !row["endings"].is_array() || row["endings"].size() < 2) {
    return "has no \"endings\", a list of two or more texts";
  }
  for (const Json& ending : row["endings"]) {
    if (!ending.is_string() || ending.get<std::string>().empty()) return "has an ending that is no text";
    question.endings.push_back(ending.get<std::string>());
  }
  // Some copies of HellaSwag have their labels as texts.
  static const Json kNone;
  const Json& label = row.contains("label") ? row["label"] : kNone;  // copying a deep value takes much stack
  const std::string shown = label.is_string()           ? label.get<std::string>()
                            : label.is_number_integer() ? label.dump()
                                                        : label.type_name();
  const bool digits = !shown.empty() && shown.size() < 4 &&
                      std::all_of(shown.begin(), shown.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!digits || std::stoi(shown) >= static_cast<int>(question.endings.size())) {
    return "has the label " + shown.substr(0, 20) + "; it is the number of an ending, from 0 on";
  }
  question.label = std::stoi(shown);
  return "";
}

bool has_space_at(const std::string& text, bool at_end) {
  return !text.empty() && std::isspace(static_cast<unsigned char>(at_end ? text.back() : text.front())) != 0;
}

}  // namespace

std::vector<Question> read_questions(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument("--multiple-choice: cannot read '" + path + "'");
  std::vector<Question> questions;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Question question;
    std::string wrong;
    try {
      wrong = read_row(Json::parse(line), question);
    } catch (const Json::exception& error) {
      wrong = "is no JSON: " + std::string(error.what()).substr(0, 300);  // it may quote a whole text
    }
    if (!wrong.empty()) {
      throw std::invalid_argument("--multiple-choice: '" + path + "', line " + std::to_string(number) + ", " + wrong);
    }
    questions.push_back(std::move(question));
  }
  if (questions.empty()) throw std::invalid_argument("--multiple-choice: '" + path + "' has no row");
  return questions;
}

Candidate candidate_of(const Question& question, std::size_t ending, const Tokenizer& tokenizer, std::int64_t T) {
  const std::string& text = question.endings[ending];
  const bool joined = question.context.empty() || has_space_at(question.context, true) || has_space_at(text, false);
  Candidate candidate;
  candidate.ids = tokenizer.encode(question.context);
  if (candidate.ids.empty()) candidate.ids.push_back(tokenizer.end_of_text());
  candidate.context = static_cast<std::int64_t>(candidate.ids.size());
  candidate.bytes = static_cast<std::int64_t>(text.size());
  const std::vector<std::int32_t> ids = tokenizer.encode(joined ? text : " " + text);
  candidate.ids.insert(candidate.ids.end(), ids.begin(), ids.end());
  const std::int64_t excess = static_cast<std::int64_t>(candidate.ids.size()) - (T + 1);
  if (excess > 0) {
    candidate.ids.erase(candidate.ids.begin(), candidate.ids.begin() + excess);
    candidate.context = std::max<std::int64_t>(1, candidate.context - excess);
  }
  return candidate;
}

int best_ending(const std::vector<double>& scores) {
  return static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

}  // namespace train_gpt

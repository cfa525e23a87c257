// Questions with several endings, one of which is right: HellaSwag's rows, or any in that form.
//
//   {"ctx": "A man is sitting on a roof. He", "endings": ["is using ..", ..], "label": 3}
//
// "context" may stand for "ctx"; other fields are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace train_gpt {

struct Question {
  std::string context;
  std::vector<std::string> endings;  // two or more
  int label = 0;                     // the right one
};

// Throws std::invalid_argument naming file, line and what is wrong.
std::vector<Question> read_questions(const std::string& path);

// Context and one ending as ids, with a space between them unless either has one there.
struct Candidate {
  std::vector<std::int32_t> ids;
  std::int64_t context = 0;  // ids of the context; at least one, since nothing predicts the first id of a row
  std::int64_t bytes = 0;    // of the ending, without that space
};

// For a row of T + 1 ids. If that is too short, the context loses its beginning first, then the ending.
Candidate candidate_of(const Question& question, std::size_t ending, const Tokenizer& tokenizer, std::int64_t T);

// The ending with the highest score, the first among equals; `scores` has one per ending.
int best_ending(const std::vector<double>& scores);

}  // namespace train_gpt

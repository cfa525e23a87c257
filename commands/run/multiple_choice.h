// The share of questions whose right ending a model finds likeliest.
#pragma once

#include <string>
#include <vector>

#include "data/multiple_choice.h"
#include "data/tokenizer.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

// Right answers when endings are compared by their log-probability in all, per token, and per byte.
struct MultipleChoiceResult {
  // The endings that were found likeliest, counted from 0.
  struct Answer {
    std::vector<double> log_probabilities;  // of the endings, summed over their ids
    int by_sum = 0;
    int by_token = 0;
    int by_byte = 0;
    int label = 0;  // the right one
  };

  std::int64_t questions = 0;
  std::int64_t by_sum = 0;
  std::int64_t by_token = 0;
  std::int64_t by_byte = 0;
  std::vector<Answer> answers = {};
};

// Endings become rows of batches of the run's shape (`batch`), as many batches as needed; the rest of the last batch is
// empty. The result depends on parameters, questions and T alone. Collective.
MultipleChoiceResult answer_questions(Trainer& trainer, const BatchShape& batch, const std::vector<Question>& questions,
                                      const Tokenizer& tokenizer);

// "multiple choice, 50 questions: 34.0% by sum, 36.0% per token, 32.0% per byte"
std::string to_text(const MultipleChoiceResult& result);

}  // namespace train_gpt

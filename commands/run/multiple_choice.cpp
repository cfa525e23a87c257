#include "commands/run/multiple_choice.h"

#include <algorithm>
#include <cstdio>

namespace train_gpt {

MultipleChoiceResult answer_questions(Trainer& trainer, const BatchShape& batch, const std::vector<Question>& questions,
                                      const Tokenizer& tokenizer) {
  std::vector<Candidate> rows;
  for (const Question& question : questions) {
    for (std::size_t ending = 0; ending < question.endings.size(); ++ending) {
      rows.push_back(candidate_of(question, ending, tokenizer, batch.seq_len));
    }
  }
  const std::int64_t step_rows = batch.step_rows();
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<double> losses;  // of the endings' ids, summed, per row
  for (std::int64_t first = 0; first < count; first += step_rows) {
    const auto fill = [&](std::int32_t* out, std::int64_t row, bool targets) {
      std::fill_n(out, batch.seq_len, targets ? -1 : 0);
      if (first + row >= count) return;
      const Candidate& one = rows[static_cast<std::size_t>(first + row)];
      const std::int64_t begin = targets ? one.context - 1 : 0;  // position i predicts id i + 1
      const auto positions = static_cast<std::int64_t>(one.ids.size()) - 1;
      std::copy(one.ids.begin() + begin + (targets ? 1 : 0), one.ids.begin() + positions + (targets ? 1 : 0),
                out + begin);
    };
    Batch tokens;
    trainer.read_batch(
        tokens, [&](std::int32_t* out, std::int64_t row) { fill(out, row, false); },
        [&](std::int32_t* out, std::int64_t row) { fill(out, row, true); });
    const std::vector<double> sums = trainer.row_losses(tokens);
    losses.insert(losses.end(), sums.begin(), sums.begin() + std::min(step_rows, count - first));
  }

  MultipleChoiceResult result;
  std::size_t row = 0;
  for (const Question& question : questions) {
    std::vector<double> by_sum, by_token, by_byte;
    for (std::size_t ending = 0; ending < question.endings.size(); ++ending, ++row) {
      const Candidate& one = rows[row];
      by_sum.push_back(-losses[row]);
      by_token.push_back(-losses[row] / static_cast<double>(static_cast<std::int64_t>(one.ids.size()) - one.context));
      by_byte.push_back(-losses[row] / static_cast<double>(one.bytes));
    }
    const MultipleChoiceResult::Answer answer{.log_probabilities = by_sum,
                                              .by_sum = best_ending(by_sum),
                                              .by_token = best_ending(by_token),
                                              .by_byte = best_ending(by_byte),
                                              .label = question.label};
    ++result.questions;
    result.by_sum += answer.by_sum == answer.label ? 1 : 0;
    result.by_token += answer.by_token == answer.label ? 1 : 0;
    result.by_byte += answer.by_byte == answer.label ? 1 : 0;
    result.answers.push_back(answer);
  }
  return result;
}

std::string to_text(const MultipleChoiceResult& result) {
  const auto percent = [&](std::int64_t right) {
    return 100 * static_cast<double>(right) / static_cast<double>(result.questions);
  };
  char text[160];
  std::snprintf(text, sizeof text,
                "multiple choice, %lld questions: right %.2f%% by sum, %.2f%% per token, %.2f%% per byte",
                static_cast<long long>(result.questions), percent(result.by_sum), percent(result.by_token),
                percent(result.by_byte));
  return text;
}

}  // namespace train_gpt

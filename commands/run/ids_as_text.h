// Generated ids in readable form: text if the tokenizer is known, else numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer.h"

namespace train_gpt {

class IdsAsText {
 public:
  // tokenizer: null if it is not known; outlives this. vocab: of the model, which may have ids that the tokenizer
  // lacks.
  IdsAsText(const Tokenizer* tokenizer, std::int64_t vocab) : tokenizer_(tokenizer), vocab_(vocab) {
    if (tokenizer_ != nullptr) decoder_.emplace(*tokenizer_);
  }

  // The id that begins a new text: the end of the one before it.
  std::int32_t first_id() const { return tokenizer_ != nullptr ? tokenizer_->end_of_text() : 0; }

  // The ids of a prompt: a text, after first_id(), or without tokenizer a list of numbers, without it. Throws
  // std::invalid_argument naming a word that is no id.
  std::vector<std::int32_t> prompt(const std::string& text) const;

  std::string push(std::int32_t id);
  std::string finish() { return decoder_ ? decoder_->finish() : ""; }

 private:
  const Tokenizer* tokenizer_;
  std::int64_t vocab_;
  std::optional<TextDecoder> decoder_;
};

// Ends a text, which comes in pieces, where a stop text begins: what may be the beginning of that is held back.
class StopText {
 public:
  explicit StopText(std::string stop) : stop_(std::move(stop)) {}

  // Adds a piece; returns the text that may be shown now.
  std::string push(const std::string& piece);
  bool found() const { return found_; }
  // Returns the text still held back, when the stop text has not come.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  std::string stop_;  // empty: none
  std::string held_;
  bool found_ = false;
};

}  // namespace train_gpt

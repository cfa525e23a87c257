// Generated ids as people read them: text where the tokenizer is known, else numbers.
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
  // tokenizer: null where it is not known; it outlives this. vocab: of the model, which may have ids that the tokenizer
  // does not.
  IdsAsText(const Tokenizer* tokenizer, std::int64_t vocab) : tokenizer_(tokenizer), vocab_(vocab) {
    if (tokenizer_ != nullptr) decoder_.emplace(*tokenizer_);
  }

  // The id that begins a new text: the end of the one before it.
  std::int32_t first_id() const { return tokenizer_ != nullptr ? tokenizer_->end_of_text() : 0; }

  // The ids of a prompt, after first_id(): a text, or without tokenizer a list of numbers, which stand alone. Throws
  // std::invalid_argument naming a word that is no id.
  std::vector<std::int32_t> prompt(const std::string& text) const;

  std::string push(std::int32_t id);
  std::string finish() { return decoder_ ? decoder_->finish() : ""; }

 private:
  const Tokenizer* tokenizer_;
  std::int64_t vocab_;
  std::optional<TextDecoder> decoder_;
};

// Text that ends where another text begins, though it comes in pieces: what may be the beginning of that is held back.
class StopText {
 public:
  explicit StopText(std::string stop) : stop_(std::move(stop)) {}

  // The part of the text received so far that may be shown and has not been shown yet.
  std::string push(const std::string& piece);
  bool found() const { return found_; }
  // The text that is still held back, if the stop text did not come.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  std::string stop_;  // empty: nothing stops it
  std::string held_;
  bool found_ = false;
};

}  // namespace train_gpt

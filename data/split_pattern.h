// The regular expression that splits text into pieces before byte pairs are merged: no token crosses the end of a
// piece. PCRE2 matches it, in Unicode mode and compiled to machine code.
//
// Matches of a pattern and the text between them are both pieces, so that pieces always make up the whole
// text ("Isolated" in tokenizer.json).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace train_gpt {

// Patterns by the name of their vocabulary; any other text is returned unchanged.
//   gpt2     GPT-2, GPT-3 (r50k, p50k)      cl100k   GPT-3.5, GPT-4
//   o200k    GPT-4o                         qwen     Qwen 2, 2.5, 3
std::string pattern_named(const std::string& name_or_pattern);

class SplitPattern {
 public:
  // Throws std::invalid_argument naming the pattern, the place in it and what is wrong.
  explicit SplitPattern(const std::string& pattern);

  const std::string& text() const { return text_; }

 private:
  friend class SplitMatcher;
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::string text_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

// The state of one thread's matching. The pattern outlives it.
class SplitMatcher {
 public:
  explicit SplitMatcher(const SplitPattern& pattern);

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // The first match of at least one byte at or after `from`; begin = end = text.size() if there is none. `text` is
  // UTF-8, `from` the start of a character.
  Match find(std::string_view text, std::size_t from);

 private:
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };
  const SplitPattern& pattern_;
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
};

}  // namespace train_gpt

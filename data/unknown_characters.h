// Characters of a text that PCRE2's Unicode tables do not know: newer than the tables, or unassigned. Patterns treat
// them as symbols; a tokenizer with newer tables may take them for letters or digits, and then gives other ids there.
#pragma once

#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace train_gpt {

// The Unicode version of the tables: "14.0.0".
std::string unicode_version();

class UnknownCharacters {
 public:
  UnknownCharacters() = default;
  explicit UnknownCharacters(std::set<char32_t> seen) : seen_(std::move(seen)) {}

  // Notes the unknown characters of `text`, which is UTF-8.
  void look_at(std::string_view text);
  void add(const UnknownCharacters& other) { seen_.insert(other.seen_.begin(), other.seen_.end()); }

  // Each once, in order.
  const std::set<char32_t>& seen() const { return seen_; }

 private:
  std::set<char32_t> seen_;
};

// "U+1E4D0..U+1E4D3, U+2FFC and 3 more ranges", of which at most `most` are named.
std::string ranges_of(const std::set<char32_t>& characters, std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace train_gpt

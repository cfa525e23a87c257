#include "data/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <utility>

namespace train_gpt {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 4> kPatterns = {{
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"cl100k",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"o200k",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

// PCRE2's \s contains U+180E, which has not been white space since Unicode 6.3, nor is it in any of the engines with
// which vocabularies were made. The White_Space property is exact.
std::string with_white_space_property(const std::string& pattern) {
  std::string exact;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      exact += escaped == 's'   ? R"(\p{White_Space})"
               : escaped == 'S' ? R"(\P{White_Space})"
                                : std::string{'\\', escaped};
    } else {
      exact += pattern[i];
    }
  }
  return exact;
}

std::string error_text(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR pointer(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

std::string pattern_named(const std::string& name_or_pattern) {
  for (const auto& [name, pattern] : kPatterns) {
    if (name_or_pattern == name) return pattern;
  }
  return name_or_pattern;
}

void SplitPattern::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

SplitPattern::SplitPattern(const std::string& pattern) : text_(pattern) {
  const std::string exact = with_white_space_property(pattern);
  int error = 0;
  PCRE2_SIZE place = 0;
  code_.reset(pcre2_compile(pointer(exact), exact.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                            &place, nullptr));
  if (!code_) {
    throw std::invalid_argument("pattern '" + pattern + "': " + error_text(error) + " after '" +
                                exact.substr(0, place) + "'");
  }
  // If PCRE2 has no machine code for this processor, its interpreter does the same, slower.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

void SplitMatcher::Free::operator()(pcre2_real_match_data_8* data) const { pcre2_match_data_free(data); }
void SplitMatcher::Free::operator()(pcre2_real_match_context_8* context) const { pcre2_match_context_free(context); }
void SplitMatcher::Free::operator()(pcre2_real_jit_stack_8* stack) const { pcre2_jit_stack_free(stack); }

SplitMatcher::SplitMatcher(const SplitPattern& pattern)
    : pattern_(pattern),
      stack_(pcre2_jit_stack_create(std::size_t{1} << 15, std::size_t{1} << 28, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      data_(pcre2_match_data_create(1, nullptr)) {
  if (!context_ || !data_) throw std::bad_alloc();
  if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  // A long run of spaces is matched space by space; the limits are meant for patterns that explode.
  pcre2_set_match_limit(context_.get(), UINT32_MAX);
}

SplitMatcher::Match SplitMatcher::find(std::string_view text, std::size_t from) {
  const int found = pcre2_match(pattern_.code_.get(), pointer(text), text.size(), from,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data_.get(), context_.get());
  if (found == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
  if (found < 0) {
    throw std::runtime_error("pattern '" + pattern_.text() + "': " + error_text(found) + " at byte " +
                             std::to_string(from) + " of a text of " + std::to_string(text.size()));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
  return {bounds[0], bounds[1]};
}

}  // namespace train_gpt

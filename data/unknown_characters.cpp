#include "data/unknown_characters.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdio>
#include <vector>

#include "data/split_pattern.h"
#include "data/utf8.h"

namespace train_gpt {
namespace {

constexpr char32_t kCodePoints = 0x110000;

bool is_surrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }

// No version of Unicode will ever assign these.
bool is_noncharacter(char32_t c) { return (c & 0xFFFEU) == 0xFFFEU || (c >= 0xFDD0 && c <= 0xFDEF); }

// [code point]: not assigned, as far as PCRE2 knows.
std::vector<bool> make_table() {
  std::vector<bool> unknown(kCodePoints, false);
  std::string text;
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (!is_surrogate(c) && !is_noncharacter(c)) append_utf8(text, c);
  }
  const SplitPattern pattern(R"(\p{Cn}+)");
  SplitMatcher matcher(pattern);
  for (SplitMatcher::Match match = matcher.find(text, 0); match.end > match.begin;
       match = matcher.find(text, match.end)) {
    for (std::size_t at = match.begin; at < match.end;) {
      const std::string_view rest = std::string_view(text).substr(at, 4);
      const std::size_t bytes = utf8_character(rest);
      unknown[code_point(rest.substr(0, bytes))] = true;
      at += bytes;
    }
  }
  return unknown;
}

bool is_unknown(char32_t c) {
  static const std::vector<bool> unknown = make_table();  // when it is first needed
  return unknown[c];
}

std::string code_text(char32_t c) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "U+%04X", static_cast<unsigned>(c));
  return text.data();
}

}  // namespace

std::string unicode_version() {
  std::array<char, 64> text{};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, text.data());
  return text.data();
}

void UnknownCharacters::look_at(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (begins_with_eight_ascii(text.substr(at))) {
      at += 8;
      continue;
    }
    const std::string_view character = text.substr(at, utf8_character(text.substr(at, 4)));
    const char32_t c = code_point(character);
    if (c >= 0x80 && is_unknown(c)) seen_.insert(c);
    at += character.size();
  }
}

std::string ranges_of(const std::set<char32_t>& characters, std::size_t most) {
  std::string text;
  std::size_t ranges = 0;
  for (auto first = characters.begin(); first != characters.end(); ++ranges) {
    auto last = first, next = std::next(first);
    while (next != characters.end() && *next == *last + 1) last = next++;
    if (ranges < most) {
      text += (ranges == 0 ? "" : ", ") + code_text(*first);
      if (last != first) text += ".." + code_text(*last);
    }
    first = next;
  }
  if (ranges <= most) return text;
  return text + " and " + std::to_string(ranges - most) + " more range" + (ranges - most == 1 ? "" : "s");
}

}  // namespace train_gpt

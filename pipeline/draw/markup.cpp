#include "pipeline/draw/markup.h"

#include <cstdint>
#include <cstdio>

#include "data/utf8.h"

namespace train_gpt {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t i) { return static_cast<std::uint8_t>(text[i]); }

// C0, DEL and C1 (as U+0080 .. U+009F).
bool is_control(std::string_view character) {
  const std::uint8_t first = byte_at(character, 0);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && byte_at(character, 1) < 0xA0);
}

// U+FFFE and U+FFFF, which XML excludes.
bool is_noncharacter(std::string_view character) { return character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF"; }

// Calls `keep` for each whole character and `other` for each byte that belongs to none.
template <typename Keep, typename Other>
void for_each_character(std::string_view text, const Keep& keep, const Other& other) {
  while (!text.empty()) {
    const std::size_t length = utf8_character(text);
    if (length == 0) {
      other(text.front());
      text.remove_prefix(1);
    } else {
      keep(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
}

}  // namespace

std::string escaped_markup(std::string_view text) {
  std::string result;
  for_each_character(
      text,
      [&](std::string_view character) {
        if (character == "&") {
          result += "&amp;";
        } else if (character == "<") {
          result += "&lt;";
        } else if (character == ">") {
          result += "&gt;";
        } else if (character == "'") {
          result += "&#39;";
        } else if (character == "\"") {
          result += "&quot;";
        } else if (character == "\n" || (!is_control(character) && !is_noncharacter(character))) {
          result += character;
        }
      },
      [&](char) { result += "\xEF\xBF\xBD"; });
  return result;
}

std::string printable(std::string_view text) {
  std::string result;
  const auto write_out = [&](char c) {
    char code[8];
    std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned>(static_cast<std::uint8_t>(c)));
    result += code;
  };
  for_each_character(
      text,
      [&](std::string_view character) {
        if (character == "\n" || character == "\t" || !is_control(character)) {
          result += character;
        } else {
          for (const char c : character) write_out(c);
        }
      },
      write_out);
  return result;
}

}  // namespace train_gpt

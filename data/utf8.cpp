#include "data/utf8.h"

#include <cstdint>
#include <cstring>

namespace train_gpt {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

// The second byte's range depends on the first, which excludes overlong forms, surrogates and large numbers.
bool second_fits(unsigned char first, unsigned char second) {
  switch (first) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return (second & 0xC0) == 0x80;
  }
}

// Bytes of a character that begins with `first`, one of several bytes; 0 if none does.
std::size_t length_after(unsigned char first) {
  return first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
}

}  // namespace

std::size_t utf8_character(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned char first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = length_after(first);
  if (length == 0 || text.size() < length || !second_fits(first, byte_at(text, 1))) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

bool begins_with_eight_ascii(std::string_view text) {
  std::uint64_t eight = 0;
  if (text.size() < sizeof eight) return false;
  std::memcpy(&eight, text.data(), sizeof eight);
  return (eight & 0x8080808080808080U) == 0;
}

std::size_t utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (begins_with_eight_ascii(text.substr(at))) {
      at += 8;
      continue;
    }
    const std::size_t length = utf8_character(text.substr(at, 4));
    if (length == 0) break;
    at += length;
  }
  return at;
}

bool utf8_may_begin(std::string_view text) {
  const unsigned char first = byte_at(text, 0);
  if (text.size() >= length_after(first)) return false;
  if (text.size() > 1 && !second_fits(first, byte_at(text, 1))) return false;
  return text.size() < 3 || (byte_at(text, 2) & 0xC0) == 0x80;
}

char32_t code_point(std::string_view character) {
  const unsigned char first = byte_at(character, 0);
  if (character.size() == 1) return first;
  char32_t value = first & (0x7FU >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) value = (value << 6U) | (byte_at(character, i) & 0x3FU);
  return value;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto put_rest = [&](unsigned shift) { put(0x80U | ((code_point >> shift) & 0x3FU)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0U | (code_point >> 6U));
    put_rest(0);
  } else if (code_point < 0x10000) {
    put(0xE0U | (code_point >> 12U));
    put_rest(6);
    put_rest(0);
  } else {
    put(0xF0U | (code_point >> 18U));
    put_rest(12);
    put_rest(6);
    put_rest(0);
  }
}

}  // namespace train_gpt

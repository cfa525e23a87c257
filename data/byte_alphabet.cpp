#include "data/byte_alphabet.h"

#include <algorithm>
#include <numeric>

#include "data/utf8.h"

namespace train_gpt {
namespace {

bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

std::array<char32_t, 256> make_alphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) alphabet[byte] = stands_for_itself(byte) ? byte : next++;
  return alphabet;
}

// [code point] -> byte; -1: no letter of the alphabet.
constexpr std::size_t kCodePoints = 0x144;
std::array<int, kCodePoints> make_reverse() {
  std::array<int, kCodePoints> reverse{};
  reverse.fill(-1);
  for (int byte = 0; byte < 256; ++byte) reverse[byte_alphabet()[static_cast<std::size_t>(byte)]] = byte;
  return reverse;
}

}  // namespace

const std::array<char32_t, 256>& byte_alphabet() {
  static const std::array<char32_t, 256> alphabet = make_alphabet();
  return alphabet;
}

const std::array<unsigned char, 256>& bytes_in_alphabet_order() {
  static const std::array<unsigned char, 256> order = [] {
    std::array<unsigned char, 256> bytes{};
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    std::sort(bytes.begin(), bytes.end(),
              [](unsigned a, unsigned b) { return byte_alphabet()[a] < byte_alphabet()[b]; });
    return bytes;
  }();
  return order;
}

std::string in_byte_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(text, byte_alphabet()[static_cast<unsigned char>(byte)]);
  return text;
}

std::string from_byte_alphabet(std::string_view text) {
  static const std::array<int, kCodePoints> reverse = make_reverse();
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_character(text.substr(at));
    const char32_t letter = length == 0 ? kCodePoints : code_point(text.substr(at, length));
    if (letter >= kCodePoints || reverse[letter] < 0) return std::string(text);
    bytes.push_back(static_cast<char>(reverse[letter]));
    at += length;
  }
  return bytes;
}

}  // namespace train_gpt

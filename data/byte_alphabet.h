// The alphabet in which vocabulary files since GPT-2's write bytes as printable characters: the 188 bytes that are
// printable in Latin-1 stand for themselves, the other 68 are, in order, U+0100, U+0101, .. (so a space is U+0120).
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace train_gpt {

// [byte] -> the code point that stands for it.
const std::array<char32_t, 256>& byte_alphabet();

// The bytes in the order of their code points, which is that of their ids in vocabularies.
const std::array<unsigned char, 256>& bytes_in_alphabet_order();

// "\xE4 b" -> "\u00E4\u0120b", as UTF-8.
std::string in_byte_alphabet(std::string_view bytes);

// The reverse. A text with a character outside of the alphabet is returned unchanged, since added tokens may have any.
std::string from_byte_alphabet(std::string_view text);

}  // namespace train_gpt

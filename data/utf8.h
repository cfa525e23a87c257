// UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace train_gpt {

// Bytes of the first character of `text`, 1 to 4; 0 if it does not begin with one.
std::size_t utf8_character(std::string_view text);

// True if `text` begins with eight ASCII bytes, as most texts do at most places, so that they can be skipped at once.
bool begins_with_eight_ascii(std::string_view text);

// Bytes of the longest prefix of `text` that is UTF-8.
std::size_t utf8_prefix(std::string_view text);

// True if `text`, of 1 to 3 bytes, may be the beginning of a longer character.
bool utf8_may_begin(std::string_view text);

// The code point of a character that utf8_character() has measured.
char32_t code_point(std::string_view character);

void append_utf8(std::string& text, char32_t code_point);

}  // namespace train_gpt

// Text of unknown origin (names of files, texts of models) made fit for a page or a terminal.
#pragma once

#include <string>
#include <string_view>

namespace train_gpt {

// Inside HTML, SVG and XML: &, <, > and quotes escaped, control characters left out, bytes that are not UTF-8 shown as
// U+FFFD.
std::string escaped_markup(std::string_view text);

// For a terminal: line feeds and tabs stay; other control characters, which could move the cursor or retitle the
// window, and bytes that are not UTF-8 are written out as \x1b.
std::string printable(std::string_view text);

}  // namespace train_gpt

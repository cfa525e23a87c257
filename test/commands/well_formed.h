// Whether a text is well-formed XML, as far as our pages and pictures go: tags nest, attributes are quoted, entities
// are known, and there is nothing in it that is not UTF-8 or a control character.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/utf8.h"

namespace train_gpt::test {

// The fault and its place; empty: there is none.
inline std::string flaw_in_markup(std::string_view text) {
  const auto at = [&](std::size_t i, const std::string& what) {
    return what + " at byte " + std::to_string(i) + ": " + std::string(text.substr(i, 40));
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_character(text.substr(i));
    if (length == 0) return at(i, "no UTF-8");
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 && byte != '\n' && byte != '\t') return at(i, "a control character");
    i += length;
  }
  if (text.starts_with("<!DOCTYPE html>")) text.remove_prefix(15);
  std::vector<std::string> open;
  bool had_root = false;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '&') {
      const std::size_t end = text.find(';', i);
      const std::string_view entity = text.substr(i, end == std::string_view::npos ? 1 : end - i + 1);
      const bool number = entity.starts_with("&#") && entity.size() > 3 &&
                          entity.substr(2, entity.size() - 3).find_first_not_of("0123456789") == std::string_view::npos;
      if (!number && entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;")
        return at(i, "an unknown entity");
      ++i;
    } else if (text[i] != '<') {
      if (open.empty() && text[i] != '\n') return at(i, "text outside the root");
      ++i;
    } else {
      const std::size_t begin = i;
      const bool closes = text.substr(i).starts_with("</");
      i += closes ? 2 : 1;
      const std::size_t name_end = text.find_first_of(" />\n", i);
      const std::string name(text.substr(i, name_end - i));
      if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") !=
                              std::string::npos) {
        return at(begin, "no name of an element");
      }
      char quote = 0;
      for (i = name_end; i < text.size() && (quote != 0 || text[i] != '>'); ++i) {
        if (quote != 0) {
          if (text[i] == '<') return at(i, "< in an attribute");
          if (text[i] == quote) quote = 0;
        } else if (text[i] == '\'' || text[i] == '"') {
          if (text[i - 1] != '=') return at(i, "a quote that begins no value");
          quote = text[i];
        } else if (text[i] == '=' && text[i + 1] != '\'' && text[i + 1] != '"') {
          return at(i, "a value without quotes");
        }
      }
      if (i >= text.size()) return at(begin, "a tag without an end");
      const bool alone = text[i - 1] == '/';
      ++i;
      if (closes) {
        if (open.empty() || open.back() != name) return at(begin, "an end of another element");
        open.pop_back();
      } else if (!alone) {
        if (open.empty() && had_root) return at(begin, "a second root");
        had_root = true;
        open.push_back(name);
      }
    }
  }
  return open.empty() && had_root ? "" : "elements are left open";
}

}  // namespace train_gpt::test

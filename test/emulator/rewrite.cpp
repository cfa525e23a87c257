// Turns CUDA syntax that no C++ compiler reads into calls of the emulator, keeping every line where it is:
//
//   rewrite FILE > OUTPUT
//
//   k<T><<<g, b, s, st>>>(a)             ->  ::emulator::launcher("k<T>", __FILE__, __LINE__, (k<T>), g, b, s, st)(a)
//   __shared__ T a[N], b;                ->  typedef T emulator_type_a[N]; emulator_type_a& a = ..; the same for b
//   extern __shared__ alignas(16) T s[]; ->  T* s = ..
//
// It reads characters, not C++: comments and literals are left alone, brackets are matched, nothing else is understood.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Position = std::string::size_type;

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// The text with comments and literals blanked out: same length, same lines.
std::string without_comments(const std::string& text) {
  std::string code = text;
  const auto blank = [&](Position from, Position to) {
    for (Position i = from; i < to && i < code.size(); ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  };
  for (Position i = 0; i < text.size();) {
    Position end = i;
    if (text.compare(i, 2, "//") == 0) {
      end = text.find('\n', i);
    } else if (text.compare(i, 2, "/*") == 0) {
      end = text.find("*/", i + 2);
      if (end != std::string::npos) end += 2;
    } else if (text.compare(i, 2, "R\"") == 0 && (i == 0 || !is_name(text[i - 1]))) {
      const Position open = text.find('(', i);
      const std::string close = ")" + text.substr(i + 2, open - i - 2) + "\"";
      end = text.find(close, open);
      if (end != std::string::npos) end += close.size();
    } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !is_name(text[i - 1])))) {  // not 1'000
      end = i + 1;
      while (end < text.size() && text[end] != text[i]) end += text[end] == '\\' ? 2 : 1;
      ++end;
    } else {
      ++i;
      continue;
    }
    if (end > text.size()) end = text.size();
    blank(i, end);
    i = end;
  }
  return code;
}

class Rewriter {
 public:
  Rewriter(std::string file, std::string text)
      : file_(std::move(file)), text_(std::move(text)), code_(without_comments(text_)) {}

  std::string run() {
    output_ = "#line 1 \"" + file_ + "\"\n";
    for (Position i = 0; i < code_.size(); ++i) {
      if (code_.compare(i, 3, "<<<") == 0) {
        i = launch(i) - 1;
      } else if (word_at(i, "__shared__")) {
        i = shared(i) - 1;
      }
    }
    return output_ + text_.substr(copied_);
  }

 private:
  bool word_at(Position i, const std::string& word) const {
    return code_.compare(i, word.size(), word) == 0 && (i == 0 || !is_name(code_[i - 1])) &&
           (i + word.size() >= code_.size() || !is_name(code_[i + word.size()]));
  }
  [[noreturn]] void fail(Position at, const std::string& what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw std::runtime_error(file_ + ":" + std::to_string(line) + ": " + what);
  }
  // First position at or after i (before or at i, exclusive) that holds no space.
  Position skip_spaces(Position i) const {
    while (i < code_.size() && is_space(code_[i])) ++i;
    return i;
  }
  Position skip_spaces_back(Position i) const {
    while (i > 0 && is_space(code_[i - 1])) --i;
    return i;
  }
  // Copies what lies before `begin`; the caller emits its replacement for [begin, end).
  void replace(Position begin, Position end, const std::string& replacement) {
    output_ += text_.substr(copied_, begin - copied_) + replacement;
    copied_ = end;
  }
  std::string newlines(Position begin, Position end) const {
    return std::string(static_cast<std::size_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(begin),
                                                           text_.begin() + static_cast<std::ptrdiff_t>(end), '\n')),
                       '\n');
  }
  // Begin of the bracket that closes at `close` (code_[close] is ')' or '>').
  Position opening(Position close) const {
    const char shut = code_[close];
    const char open = shut == ')' ? '(' : '<';
    int depth = 0;
    for (Position i = close + 1; i-- > 0;) {
      if (code_[i] == ')' && shut == '>') {
        i = opening(i);
        continue;
      }
      if (code_[i] == shut) ++depth;
      if (code_[i] == open && --depth == 0) return i;
    }
    fail(close, std::string("no ") + open + " for this " + shut);
  }
  // End (exclusive) of the bracket that opens at `open`.
  Position closing(Position open) const {
    int depth = 0;
    for (Position i = open; i < code_.size(); ++i) {
      if (code_[i] == '(' || code_[i] == '[' || code_[i] == '{') ++depth;
      if ((code_[i] == ')' || code_[i] == ']' || code_[i] == '}') && --depth == 0) return i + 1;
    }
    fail(open, "this bracket is never closed");
  }

  // `at`: the <<<. Returns where to go on.
  Position launch(Position at) {
    Position begin = skip_spaces_back(at);
    if (begin > 0 && code_[begin - 1] == '>') begin = skip_spaces_back(opening(begin - 1));
    const Position name_end = begin;
    while (begin > 0 && (is_name(code_[begin - 1]) || code_[begin - 1] == ':')) --begin;
    if (begin == name_end) fail(at, "no kernel name before <<<");
    Position end = at + 3;
    while (code_.compare(end, 3, ">>>") != 0) {
      if (end >= code_.size()) fail(at, "<<< without >>>");
      end = code_[end] == '(' || code_[end] == '[' || code_[end] == '{' ? closing(end) : end + 1;
    }
    if (code_[skip_spaces(end + 3)] != '(') fail(at, "no arguments after >>>");
    const std::string kernel = text_.substr(begin, at - begin);
    std::string title;
    for (const char c : code_.substr(begin, skip_spaces_back(at) - begin)) {
      if (!is_space(c) || (!title.empty() && title.back() != ' ')) title += is_space(c) ? ' ' : c;
    }
    replace(begin, end + 3,
            "::emulator::launcher(\"" + title + "\", __FILE__, __LINE__, (" + kernel + "), " +
                text_.substr(at + 3, end - at - 3) + ")");
    return end + 3;
  }

  // Consumes alignas(..) or __align__(..) at i; its argument goes to `alignment`.
  Position take_alignment(Position i, std::string& alignment) const {
    for (const char* word : {"alignas", "__align__"}) {
      if (!word_at(i, word)) continue;
      const Position open = code_.find('(', i);
      const Position end = closing(open);
      alignment = text_.substr(open + 1, end - open - 2);
      return skip_spaces(end);
    }
    return i;
  }

  // `at`: the __shared__. Returns where to go on.
  Position shared(Position at) {
    Position begin = at;
    std::string alignment = "1";
    bool is_extern = false;
    while (true) {  // what stands before: extern, static, alignas(..)
      const Position before = skip_spaces_back(begin);
      Position word = before;
      if (word > 0 && code_[word - 1] == ')') word = skip_spaces_back(opening(word - 1));
      while (word > 0 && is_name(code_[word - 1])) --word;
      if (word_at(word, "extern")) {
        is_extern = true;
      } else if (word_at(word, "alignas") || word_at(word, "__align__")) {
        take_alignment(word, alignment);
      } else if (!word_at(word, "static")) {
        break;
      }
      begin = word;
    }
    Position i = take_alignment(skip_spaces(at + std::string("__shared__").size()), alignment);
    const Position end = declaration_end(i);
    std::string replacement = is_extern ? dynamic(i, end) : variables(i, end, alignment);
    const auto lines = static_cast<std::size_t>(std::count(replacement.begin(), replacement.end(), '\n'));
    replacement += newlines(begin, end).substr(std::min(lines, newlines(begin, end).size()));
    replace(begin, end, replacement);
    return end;
  }

  // The position after the ; of the declaration that begins at i.
  Position declaration_end(Position i) const {
    const Position begin = i;
    while (i < code_.size() && code_[i] != ';')
      i = code_[i] == '(' || code_[i] == '[' || code_[i] == '{' ? closing(i) : i + 1;
    if (i >= code_.size()) fail(begin, "__shared__ without ;");
    return i + 1;
  }

  // End of the declarator at i: the next , or ; outside brackets. `name_end`: where its name ends.
  Position declarator_end(Position i, Position& name_end) const {
    name_end = std::string::npos;
    int angles = 0;
    for (; code_[i] != ';' && (code_[i] != ',' || angles != 0);) {
      if (code_[i] == '[' && angles == 0 && name_end == std::string::npos) name_end = skip_spaces_back(i);
      if (code_[i] == '<') ++angles;
      if (code_[i] == '>') --angles;
      i = code_[i] == '(' || code_[i] == '[' || code_[i] == '{' ? closing(i) : i + 1;
    }
    if (name_end == std::string::npos) name_end = skip_spaces_back(i);
    return i;
  }
  Position name_begin(Position name_end) const {
    while (name_end > 0 && is_name(code_[name_end - 1])) --name_end;
    return name_end;
  }

  std::string dynamic(Position i, Position end) const {
    Position name_end = 0;
    declarator_end(i, name_end);
    const Position name = name_begin(name_end);
    const std::string type = text_.substr(i, name - i);
    static_cast<void>(end);
    return type + "* " + text_.substr(name, name_end - name) + " = static_cast<" + type +
           "*>(::emulator::dynamic_shared_memory(__FILE__, __LINE__));";
  }

  std::string variables(Position i, Position end, const std::string& alignment) const {
    std::string result;
    std::string type;
    while (i < end) {
      Position name_end = 0;
      const Position stop = declarator_end(i, name_end);
      const Position begin = name_begin(name_end);
      if (type.empty()) type = text_.substr(i, begin - i);
      const std::string name = text_.substr(begin, name_end - begin);
      const std::string alias = "emulator_type_" + name;
      if (name.empty() || type.empty()) fail(begin, "cannot read this __shared__ declaration");
      result += "typedef " + type + " " + alias + text_.substr(name_end, stop - name_end) + "; " + alias + "& " + name +
                " = EMULATOR_SHARED_VARIABLE(" + alias + ", " + name + ", " + alignment + "); ";
      i = stop + 1;
    }
    return result;
  }

  std::string file_;
  std::string text_;
  std::string code_;
  std::string output_;
  Position copied_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count != 2) throw std::runtime_error("usage: rewrite FILE > OUTPUT");
    std::ifstream input(arguments[1], std::ios::binary);
    if (!input) throw std::runtime_error(std::string(arguments[1]) + ": cannot be read");
    std::stringstream text;
    text << input.rdbuf();
    std::cout << Rewriter(arguments[1], text.str()).run();
    return std::cout.flush() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rewrite: error: %s\n", error.what());
    return 1;
  }
}

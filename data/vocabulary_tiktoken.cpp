// OpenAI's lists: one "base64 rank" per line. A pair of tokens merges whenever its bytes together are a token, in order
// of that token's rank; the rank is the id too.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>

#include "data/split_pattern.h"
#include "data/vocabulary_file.h"

namespace train_gpt {
namespace {

// OpenAI's own lists: the pattern that splits the text, and the id of the end of text.
struct KnownList {
  const char* file;
  const char* pattern;
  std::int32_t end_of_text;
};
constexpr std::array<KnownList, 4> kKnownLists = {{{"r50k_base.tiktoken", "gpt2", 50256},
                                                   {"p50k_base.tiktoken", "gpt2", 50256},
                                                   {"cl100k_base.tiktoken", "cl100k", 100257},
                                                   {"o200k_base.tiktoken", "o200k", 199999}}};

// Finding the ways to make a token takes steps that grow with the square of its length. OpenAI's longest has 128 bytes.
constexpr std::size_t kLongestToken = 1024;

const KnownList* known_list(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename();
  const auto found =
      std::find_if(kKnownLists.begin(), kKnownLists.end(), [&](const auto& list) { return name == list.file; });
  return found == kKnownLists.end() ? nullptr : &*found;
}

// Empty if it is not base64 with its padding (RFC 4648).
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t digit = i < text.size() - padding ? kDigits.find(text[i]) : 0;
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6U) | static_cast<std::uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (const unsigned shift : {16U, 8U, 0U}) bytes.push_back(static_cast<char>((bits >> shift) & 0xFFU));
    bits = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

void read_tokens(Vocabulary& vocabulary, const std::string& path) {
  const std::string text = read_whole_file(path);
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = std::min(line.find(' '), line.size());
    const auto bytes = from_base64(line.substr(0, space));
    std::int64_t rank = -1;
    const char* last = line.data() + line.size();
    const auto [stop, error] = std::from_chars(std::min(line.data() + space + 1, last), last, rank);
    if (!bytes || error != std::errc() || stop != last) {
      refuse_vocabulary(path, "line " + std::to_string(number) + " ('" + std::string(line.substr(0, 80)) +
                                  "') is not a token in base64 and its rank");
    }
    if (bytes->size() > kLongestToken) {
      refuse_vocabulary(path, "line " + std::to_string(number) + " has a token of " + std::to_string(bytes->size()) +
                                  " bytes; lists have none of more than " + std::to_string(kLongestToken));
    }
    place_token(vocabulary, rank, *bytes, lines, path);
  }
}

// Every way to make a token of two others, in the order that `transformers` writes them to a tokenizer.json.
void add_merges(Vocabulary& vocabulary) {
  const TokenIds ids = token_ids(vocabulary);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    std::vector<Vocabulary::Merge> ways;
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      const auto right = ids.find(token.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      ways.push_back({left->second, right->second, static_cast<std::int32_t>(id)});
    }
    std::sort(ways.begin(), ways.end(),
              [](const auto& a, const auto& b) { return a.left != b.left ? a.left < b.left : a.right < b.right; });
    vocabulary.merges.insert(vocabulary.merges.end(), ways.begin(), ways.end());
  }
}

}  // namespace

Vocabulary read_tiktoken(const std::string& path, const std::string& pattern) {
  const KnownList* known = known_list(path);
  if (known == nullptr && pattern.empty()) {
    refuse_vocabulary(path, "does not say how text is cut: give --pattern gpt2, cl100k, o200k, qwen or a regular " +
                                std::string("expression"));
  }
  Vocabulary vocabulary;
  vocabulary.name = path;
  vocabulary.patterns = {pattern_named(pattern.empty() ? known->pattern : pattern)};
  vocabulary.whole_pieces_first = true;
  read_tokens(vocabulary, path);
  add_merges(vocabulary);
  const std::int64_t next = known != nullptr ? known->end_of_text : vocabulary.size();
  place_token(vocabulary, next, kEndOfText, static_cast<std::size_t>(next), path);
  vocabulary.added.push_back({kEndOfText, static_cast<std::int32_t>(next)});
  return vocabulary;
}

}  // namespace train_gpt

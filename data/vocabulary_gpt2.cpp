// GPT-2's pair of files: {"token": id} in the byte alphabet, and one merge per line, "left right", in order of rank.
#include <nlohmann/json.hpp>
#include <string_view>

#include "data/byte_alphabet.h"
#include "data/split_pattern.h"
#include "data/vocabulary_file.h"

namespace train_gpt {
namespace {

void read_tokens(Vocabulary& vocabulary, const std::string& path) {
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(read_whole_file(path));
  } catch (const nlohmann::json::exception& error) {
    refuse_vocabulary(path, "is no JSON: " + std::string(error.what()).substr(0, 300));  // it may quote a whole text
  }
  if (!root.is_object() || root.empty()) refuse_vocabulary(path, "is no JSON object of tokens and ids");
  for (const auto& [token, id] : root.items()) {
    if (!id.is_number_integer()) refuse_vocabulary(path, "gives a token an id that is no whole number");
    place_token(vocabulary, id.get<std::int64_t>(), from_byte_alphabet(token), root.size(), path);
    if (token == kEndOfText) vocabulary.added.push_back({token, id.get<std::int32_t>()});
  }
}

void read_merges(Vocabulary& vocabulary, const std::string& path) {
  const std::string text = read_whole_file(path);
  const TokenIds ids = token_ids(vocabulary);
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    const std::string where = "line " + std::to_string(number) + " ('" + line.substr(0, 80) + "')";
    if (space == std::string::npos || space == 0 || line.find(' ', space + 1) != std::string::npos) {
      refuse_vocabulary(path, where + " is not two tokens with a space between them");
    }
    vocabulary.merges.push_back(merge_of(ids, from_byte_alphabet(line.substr(0, space)),
                                         from_byte_alphabet(line.substr(space + 1)), path, where));
  }
}

}  // namespace

Vocabulary read_gpt2_files(const std::string& vocab_path, const std::string& merges_path) {
  Vocabulary vocabulary;
  vocabulary.name = vocab_path;
  vocabulary.patterns = {pattern_named("gpt2")};
  read_tokens(vocabulary, vocab_path);
  read_merges(vocabulary, merges_path);
  return vocabulary;
}

}  // namespace train_gpt

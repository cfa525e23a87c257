#include "data/vocabulary.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "data/glob.h"
#include "data/split_pattern.h"
#include "data/vocabulary_file.h"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

// Requires every byte to be a token, or some texts would have no ids.
void check_bytes(const Vocabulary& vocabulary, const std::string& path) {
  const TokenIds ids = token_ids(vocabulary);
  for (int byte = 0; byte < 256; ++byte) {
    if (ids.contains(std::string(1, static_cast<char>(byte)))) continue;
    refuse_vocabulary(path, "has no token for byte " + std::to_string(byte) +
                                ": only byte-level vocabularies, which have one for each of the 256, are read");
  }
}

// Throws if a pattern is not valid, naming its file.
void check_patterns(const Vocabulary& vocabulary, bool from_file) {
  for (const std::string& pattern : vocabulary.patterns) {
    try {
      SplitPattern{pattern};
    } catch (const std::invalid_argument& error) {
      if (!from_file) throw;
      refuse_vocabulary(vocabulary.name, "cuts text by a " + std::string(error.what()).substr(0, 300));
    }
  }
}

// The token that ends a text, under any of its usual names.
std::int32_t find_end_of_text(const Vocabulary& vocabulary, const std::string& path) {
  for (const char* name : {kEndOfText, "<|end_of_text|>", "</s>"}) {
    for (const Vocabulary::AddedToken& token : vocabulary.added) {
      if (token.text == name) return token.id;
    }
  }
  refuse_vocabulary(path, std::string("has no token ") + kEndOfText + " to put between documents; add it");
}

// Reads the files of a folder, the fullest description first.
Vocabulary read_folder(const fs::path& folder, const std::string& pattern) {
  if (fs::exists(folder / "tokenizer.json")) return read_tokenizer_json(folder / "tokenizer.json");
  if (fs::exists(folder / "vocab.json")) return read_gpt2_files(folder / "vocab.json", folder / "merges.txt");
  if (fs::exists(folder / "encoder.json")) return read_gpt2_files(folder / "encoder.json", folder / "vocab.bpe");
  std::vector<std::string> lists;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tiktoken") lists.push_back(entry.path().string());
  }
  if (lists.size() == 1) return read_tiktoken(lists.front(), pattern);
  throw std::invalid_argument("--tokenizer: the folder '" + folder.string() + "' has " +
                              (lists.empty() ? "no" : "several lists *.tiktoken and no") +
                              " tokenizer.json, vocab.json with merges.txt, or encoder.json with vocab.bpe");
}

Vocabulary read_file(const fs::path& path, const std::string& pattern) {
  const std::string name = path.filename();
  if (path.extension() == ".tiktoken") return read_tiktoken(path, pattern);
  if (name == "vocab.json" || name == "merges.txt") {
    return read_gpt2_files(path.parent_path() / "vocab.json", path.parent_path() / "merges.txt");
  }
  if (name == "encoder.json" || name == "vocab.bpe") {
    return read_gpt2_files(path.parent_path() / "encoder.json", path.parent_path() / "vocab.bpe");
  }
  return read_tokenizer_json(path);
}

}  // namespace

Vocabulary byte_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.name = "bytes";
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.tokens.emplace_back(kEndOfText);
  vocabulary.end_of_text = 256;
  return vocabulary;
}

Vocabulary read_vocabulary(const std::string& path, const std::string& pattern) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw std::invalid_argument("--tokenizer: there is no file or folder '" + path +
                                "'; give bytes, learn, or where tokenizer.json, vocab.json or a .tiktoken list is");
  }
  Vocabulary vocabulary = fs::is_directory(status) ? read_folder(path, pattern) : read_file(path, pattern);
  check_bytes(vocabulary, vocabulary.name);
  vocabulary.end_of_text = find_end_of_text(vocabulary, vocabulary.name);
  if (!pattern.empty()) {
    vocabulary.patterns = {pattern_named(pattern)};
    vocabulary.json.clear();
  }
  check_patterns(vocabulary, pattern.empty());
  if (vocabulary.json.empty()) vocabulary.json = tokenizer_json(vocabulary);
  return vocabulary;
}

// ---- for the readers ------------------------------------------------------------------------------------------------

void refuse_vocabulary(const std::string& path, const std::string& reason) {
  throw std::invalid_argument("tokenizer file '" + path + "' " + reason);
}

std::string read_whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || fs::is_directory(path)) refuse_vocabulary(path, std::string("cannot be read: ") + std::strerror(errno));
  return text;
}

void place_token(Vocabulary& vocabulary, std::int64_t id, std::string bytes, std::size_t entries,
                 const std::string& path) {
  const auto most = static_cast<std::int64_t>(4 * entries + 4096);
  if (id < 0 || id >= most) {
    refuse_vocabulary(path, "gives a token the id " + std::to_string(id) + ", but a list of " +
                                std::to_string(entries) + " tokens has ids from 0 to about their number");
  }
  const auto place = static_cast<std::size_t>(id);
  if (vocabulary.tokens.size() <= place) vocabulary.tokens.resize(place + 1);
  if (bytes.empty()) refuse_vocabulary(path, "has an empty token, id " + std::to_string(id));
  if (!vocabulary.tokens[place].empty() && vocabulary.tokens[place] != bytes) {
    refuse_vocabulary(path, "has two tokens of id " + std::to_string(id));
  }
  vocabulary.tokens[place] = std::move(bytes);
}

TokenIds token_ids(const Vocabulary& vocabulary) {
  TokenIds ids;
  ids.reserve(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.tokens[id].empty()) ids.emplace(vocabulary.tokens[id], static_cast<std::int32_t>(id));
  }
  return ids;
}

Vocabulary::Merge merge_of(const TokenIds& ids, const std::string& left, const std::string& right,
                           const std::string& path, const std::string& where) {
  const auto id_of = [&](const std::string& bytes) {
    const auto found = ids.find(bytes);
    if (found == ids.end()) refuse_vocabulary(path, where + " needs a token that the vocabulary does not have");
    return found->second;
  };
  return {id_of(left), id_of(right), id_of(left + right)};
}

}  // namespace train_gpt

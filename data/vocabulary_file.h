// Declarations shared by the readers of the file formats. See vocabulary.h.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "data/vocabulary.h"

namespace train_gpt {

inline constexpr const char* kEndOfText = "<|endoftext|>";

// Readers leave `json` empty unless the file is a tokenizer.json. They throw std::invalid_argument.
Vocabulary read_tokenizer_json(const std::string& path);
Vocabulary read_gpt2_files(const std::string& vocab_path, const std::string& merges_path);
Vocabulary read_tiktoken(const std::string& path, const std::string& pattern);

// Throws "tokenizer file 'PATH' REASON".
[[noreturn]] void refuse_vocabulary(const std::string& path, const std::string& reason);

std::string read_whole_file(const std::string& path);

// Ids by the bytes of their tokens.
using TokenIds = std::unordered_map<std::string, std::int32_t>;

// Puts a token at its id. `entries`: of the whole file; ids may leave gaps, but not absurd ones.
void place_token(Vocabulary& vocabulary, std::int64_t id, std::string bytes, std::size_t entries,
                 const std::string& path);
TokenIds token_ids(const Vocabulary& vocabulary);

// left + right -> the token of both. Throws naming `where` if one of the three is missing.
Vocabulary::Merge merge_of(const TokenIds& ids, const std::string& left, const std::string& right,
                           const std::string& path, const std::string& where);

}  // namespace train_gpt

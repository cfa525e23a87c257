// The parts of a byte-level byte-pair tokenizer, and its file formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

struct Vocabulary {
  // Two neighbouring tokens that become one. The place in the list is the rank: low ranks merge first (Sennrich et al.
  // 2016, over bytes as in GPT-2).
  struct Merge {
    std::int32_t left = 0;
    std::int32_t right = 0;
    std::int32_t result = 0;
  };
  // A text that is one token wherever it occurs, found before anything else is cut or merged.
  struct AddedToken {
    std::string text;
    std::int32_t id = 0;
    bool normalized = false;  // tokens that are not are looked for first
  };

  std::string name;                   // "bytes", or its file
  std::vector<std::string> tokens;    // [id] -> its bytes; empty: there is no such id
  std::vector<Merge> merges;          // by rank
  std::vector<AddedToken> added;      // by id
  std::vector<std::string> patterns;  // the first splits text, the next its pieces, ..; none: no split
  bool whole_pieces_first = false;    // a piece that is itself a token is not merged from its bytes
  std::int32_t end_of_text = 0;       // the id between documents
  std::string json;                   // as tokenizer.json; empty for bytes

  // Ids are below it.
  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
};

// Ids 0 to 255 are the bytes, 256 is the end of text: no merges, and any input comes back byte for byte.
// "<|endoftext|>" within a text is 13 ordinary bytes.
Vocabulary byte_vocabulary();
inline constexpr std::int64_t kByteVocab = 257;
// A model with this vocabulary reads and writes bytes.
inline bool is_byte_level(std::int64_t vocab) { return vocab == kByteVocab; }

// Reads a vocabulary from a file or from the folder that holds it:
//
//   tokenizer.json            Hugging Face's, with a byte-level BPE model
//   vocab.json, merges.txt    GPT-2's as Hugging Face names them
//   encoder.json, vocab.bpe   GPT-2's as OpenAI names them
//   *.tiktoken                OpenAI's lists of base64 tokens; the pattern follows from the names of OpenAI's own
//                             (cl100k_base.tiktoken ..), else it has to be given
//
// `pattern`: empty, or one that replaces the file's (see pattern_named). Throws std::invalid_argument naming the file,
// what is wrong with it, and what would be right.
Vocabulary read_vocabulary(const std::string& path, const std::string& pattern = "");

// tokenizer.json as Hugging Face's `tokenizers` and `transformers` read it.
std::string tokenizer_json(const Vocabulary& vocabulary);

}  // namespace train_gpt

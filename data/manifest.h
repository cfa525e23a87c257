// Metadata of a token file: FILE.json beside FILE, written by `train_gpt prepare`. llm.c's token files have none and
// need none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace train_gpt {

struct Manifest {
  struct Document {
    std::string file;              // one document, or several with end-of-text ids between them
    std::int64_t first_token = 0;  // of its text, after the end-of-text id
    std::int64_t tokens = 0;
  };

  std::string tokenizer;         // "bytes", or the name of a tokenizer file beside the token file
  std::int64_t vocab = 0;        // ids are below it
  std::int64_t end_of_text = 0;  // the id that precedes every document
  std::int64_t tokens = 0;       // in the token file, as in its header
  std::vector<Document> documents;
  // Ranges of those characters in the texts up to the end of this file that PCRE2's tables do not know
  // (unknown_characters.h). For people; no code reads it.
  std::string unknown;
};

std::string manifest_path(const std::string& token_file);

// The JSON text of FILE.json.
std::string manifest_text(const Manifest& manifest);

// Empty if the token file has no manifest. Throws std::invalid_argument naming the manifest if it cannot be read, or if
// its number of tokens is not that of the token file's header.
std::optional<Manifest> read_manifest(const std::string& token_file);

// The vocabulary in the manifests of the files of `pattern`; empty if none of them has a manifest. Throws
// std::invalid_argument naming two that disagree.
std::optional<std::int64_t> vocab_of(const std::string& pattern, const std::string& option);

}  // namespace train_gpt

// The tokenizer of token files and of models: found beside them, kept beside what a run writes.
#pragma once

#include <optional>
#include <string>

#include "data/tokenizer.h"
#include "model/config.h"

namespace train_gpt {

// The tokenizer that the manifests of the token files `pattern` name; empty if they name none, or one that no longer
// exists. Throws std::invalid_argument naming the file if it cannot be read.
std::optional<Tokenizer> tokenizer_of_tokens(const std::string& pattern, const std::string& option);

// tokenizer.json beside a model file or in a model's folder; bytes for a model of 257 ids that has none. Throws
// std::invalid_argument if it has more ids than the model.
std::optional<Tokenizer> tokenizer_of_model(const std::string& init, const ModelConfig& model);

// The tokenizer that --tokenizer names: bytes, or anything that read_vocabulary() takes.
Tokenizer tokenizer_named(const std::string& name);

// Writes tokenizer.json into a model's folder; for bytes, which need none, removes that of an earlier model.
void keep_tokenizer(const std::optional<Tokenizer>& tokenizer, const std::string& folder);

}  // namespace train_gpt

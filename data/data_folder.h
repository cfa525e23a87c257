// A folder that `train_gpt prepare` made: train.bin, val.bin, or shards of them, and the tokenizer.
#pragma once

#include <string>

namespace train_gpt {

// Names and patterns, for TokenDataset.
struct DataFolder {
  std::string train;
  std::string validation;  // empty: the folder has none
};

// Throws std::invalid_argument naming the folder if it has no training tokens, or tokens of two preparations.
DataFolder find_data_folder(const std::string& folder);

// The tokenizer of a model or of token files: tokenizer.json in `folder`; empty if it has none.
std::string tokenizer_in(const std::string& folder);

}  // namespace train_gpt

// Text files to token files: documents, the share of them for validation, a vocabulary learned from the others, and
// their ids.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/documents.h"
#include "data/tokenizer.h"

namespace train_gpt {

struct PrepareRequest {
  std::vector<std::string> text_files;
  DocumentSettings documents;
  std::string train_file;      // "DIR/train.bin", or any other
  std::string val_file;        // required if val_fraction > 0
  std::string tokenizer_file;  // its name in manifests; "bytes": there is none
  // Every (1/val_fraction)th document validates; if there are fewer documents than that, the last part of each does.
  double val_fraction = 0;
  std::int64_t shard_tokens = 0;  // of a token file; 0: one file
  int threads = 1;
  std::size_t batch_bytes = std::size_t{1} << 20;  // text that a thread takes at a time
};

struct PrepareHooks {
  std::function<void(std::int64_t, std::int64_t)> progress;  // bytes done, bytes in all; about every 16 MB
  std::function<bool()> stop;                                // called often; true: end early, to be continued later
};

struct PrepareSummary {
  std::int64_t train_tokens = 0;  // end-of-text ids included
  std::int64_t val_tokens = 0;
  std::int64_t documents = 0;
  std::int64_t empty = 0;  // documents of no bytes, which are left out
  bool resumed = false;    // continued an earlier preparation
  bool stopped = false;    // not finished: the same request continues it
  UnknownCharacters unknown = {};
  std::vector<std::string> files;
};

// Returns all texts' bytes. Throws std::invalid_argument if one cannot be read, or is one of `written`, the output.
std::int64_t check_texts(const std::vector<std::string>& text_files, const std::vector<std::string>& written);

// Writes the token files and their manifests. Files appear under their names only when complete; missing folders are
// made. Progress is kept in `train_file`.journal every few seconds, so that an interrupted preparation can continue.
// Memory does not grow with the texts. Throws std::invalid_argument if there is no text, a text cannot be read, or one
// token file cannot hold it; std::runtime_error if the output cannot be written.
PrepareSummary prepare(const PrepareRequest& request, const Tokenizer& tokenizer, const PrepareHooks& hooks = {});

// A vocabulary of `size` ids learned from the training part of the texts (learn_merges.h), split by `pattern`. Throws
// as prepare() does; std::runtime_error if it was told to stop.
Vocabulary learn_from_texts(const PrepareRequest& request, std::int64_t size, const std::string& pattern,
                            const PrepareHooks& hooks = {});

// True if an earlier preparation of this request was interrupted.
bool can_resume(const PrepareRequest& request, const std::string& tokenizer_name);

}  // namespace train_gpt

// Token files being written, one after the other: ids, documents and manifests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/temporary_file.h"

namespace train_gpt {

struct ShardSettings {
  std::string path;               // the token file, "train.bin"; with shards "train-000000.bin", ..
  std::int64_t shard_tokens = 0;  // of each file but the last; 0: one file
  Manifest manifest;              // tokenizer, vocabulary and end of text of every file
};

// The point to continue from after an interruption: the file under way and what it holds.
struct ShardState {
  std::int64_t shard = 0;
  std::int64_t tokens = 0;
  std::int64_t total = 0;  // of all files
  std::vector<Manifest::Document> documents;
};

class TokenShards {
 public:
  explicit TokenShards(ShardSettings settings, ShardState from = {});

  // Creates the file under way, which otherwise happens with the first id. Throws std::invalid_argument if that is not
  // possible.
  void open();

  // Appends a document's ids after an end-of-text id. `file` is where the text came from; the manifest tells the tokens
  // of one file together. These throw std::invalid_argument if one file cannot count the tokens, std::runtime_error if
  // it cannot be written.
  void begin_document(const std::string& file);
  void append(std::span<const std::int32_t> ids);

  std::int64_t total() const { return state_.total; }
  // The files that have got their names; until the last has its own, older files of those names are as they were.
  const std::vector<std::string>& files() const { return files_; }

  // Brings everything to the disk; afterwards a writer with this state can go on.
  const ShardState& flush();
  // Leaves the file under way to be continued from the last flush().
  void keep();
  // Gives the last file its name, and removes shards of an earlier, longer run.
  void finish();

 private:
  std::string path_of(std::int64_t shard) const;
  void close_shard();
  void append_ids(std::span<const std::int32_t> ids);

  ShardSettings settings_;
  ShardState state_;
  std::string document_file_;
  std::optional<TemporaryFile> file_;
  std::vector<std::string> files_;
  std::vector<char> encoded_;
};

}  // namespace train_gpt

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

// The point from which to continue after an interruption: the file under way and its contents.
struct ShardState {
  std::int64_t shard = 0;
  std::int64_t tokens = 0;
  std::int64_t total = 0;  // of all files
  std::vector<Manifest::Document> documents;
};

class TokenShards {
 public:
  explicit TokenShards(ShardSettings settings, ShardState from = {});

  // Creates the file under way now instead of with the first id, as otherwise. Throws std::invalid_argument if that is
  // not possible.
  void open();

  // Appends a document's ids after an end-of-text id. `file` is the text's file; the manifest has one entry for the
  // tokens of a file. These functions throw std::invalid_argument if one file cannot count the tokens,
  // std::runtime_error if it cannot be written.
  void begin_document(const std::string& file);
  void append(std::span<const std::int32_t> ids);

  std::int64_t total() const { return state_.total; }
  // The files that have got their names. Until the last one has, older files of these names are as they were.
  const std::vector<std::string>& files() const { return files_; }

  // Brings everything to the disk; a writer with the returned state can continue from here.
  const ShardState& flush();
  // Leaves the file under way to be continued from the last flush().
  void keep();
  // Gives the last file its name, and removes shards of an earlier, longer run. `unknown`: for its manifest.
  void finish(const std::string& unknown = "");

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

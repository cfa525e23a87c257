// The progress of a preparation, which is kept beside its output, so that the same command can continue an interrupted
// preparation.
#pragma once

#include <optional>
#include <string>

#include "data/documents.h"
#include "data/token_shards.h"
#include "data/unknown_characters.h"

namespace train_gpt {

struct PrepareJournal {
  std::string request;  // what is prepared, and how; another request begins anew
  DocumentPlace place;  // of the first document that is not in the files
  std::int64_t empty = 0;
  UnknownCharacters unknown;
  ShardState train;
  ShardState validation;
};

// Empty if there is none, or if it cannot be read: then the preparation begins anew.
std::optional<PrepareJournal> read_journal(const std::string& path);

// Returns when the journal is on the disk. Throws std::runtime_error.
void write_journal(const std::string& path, const PrepareJournal& journal);

}  // namespace train_gpt

// How far a preparation has come, kept beside its output, so that the same command goes on where an earlier one was
// ended.
#pragma once

#include <optional>
#include <string>

#include "data/documents.h"
#include "data/token_shards.h"
#include "data/unknown_characters.h"

namespace train_gpt {

struct PrepareJournal {
  std::string request;  // what is being prepared, and how; another request begins anew
  DocumentPlace place;  // of the first document that is not in the files
  std::int64_t empty = 0;
  UnknownCharacters unknown;
  ShardState train;
  ShardState validation;
};

// Nothing if there is none, or none that can be read: then the preparation begins anew.
std::optional<PrepareJournal> read_journal(const std::string& path);

// On the disk when it returns. Throws std::runtime_error.
void write_journal(const std::string& path, const PrepareJournal& journal);

}  // namespace train_gpt

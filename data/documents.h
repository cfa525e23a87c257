// The documents of text files, one after the other, without reading beyond the current one.
//
//   FILE.jsonl every line is a JSON object, one of whose fields is a document; empty lines are skipped
//   other files    one document each, or several with <|endoftext|> between them
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/mapped_bytes.h"

namespace train_gpt {

// A file mapped into memory, which takes no memory until it is read.
class MappedText {
 public:
  // Throws std::invalid_argument naming the text.
  explicit MappedText(const std::string& path);

  std::string_view text() const {
    return {reinterpret_cast<const char*>(mapped_.bytes().data()), mapped_.bytes().size()};
  }
  // The text before `end` has been read: the system may release its memory.
  void forget_before(std::size_t end);
  // To be called after reading: throws std::runtime_error if the file was cut off meanwhile.
  void require_whole() const;

 private:
  std::string path_;
  MappedBytes mapped_;
  std::size_t forgotten_ = 0;
};

struct DocumentSettings {
  std::string field = "text";        // of JSONL rows
  bool split_at_end_of_text = true;  // text files; false: "<|endoftext|>" is text like any other
};

// The place from which the next document is read.
struct DocumentPlace {
  std::size_t file = 0;
  std::size_t byte = 0;
  std::int64_t line = 1;      // of a file of rows
  std::int64_t document = 0;  // how many came before

  bool operator==(const DocumentPlace&) const = default;
};

struct Document {
  std::shared_ptr<MappedText> file;  // keeps `raw` alive
  std::string_view raw;              // of a text file: the text; of a row: its JSON
  bool is_row = false;
  DocumentPlace place;
};

class DocumentReader {
 public:
  // `files` outlives the reader. The files' names tell rows from texts.
  DocumentReader(const std::vector<std::string>& files, DocumentSettings settings, DocumentPlace from = {});

  // False at the end. Empty text files and blank lines are documents of no bytes.
  bool next(Document& document);
  const DocumentPlace& place() const { return place_; }
  // The texts before `place` have been read: the system may release their memory.
  void forget_before(const DocumentPlace& place);

  // The text of a document: `raw` itself, or the row's field, kept in `row_text`. Threads may call this concurrently.
  // Throws std::invalid_argument naming file and line of a row that is not a JSON object with that field.
  std::string_view text_of(const Document& document, std::string& row_text) const;

 private:
  const std::vector<std::string>& files_;
  DocumentSettings settings_;
  DocumentPlace place_;
  std::shared_ptr<MappedText> file_;  // the file of place_, if it is open
};

}  // namespace train_gpt

#include "data/documents.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "data/vocabulary_file.h"

namespace train_gpt {
namespace {

bool has_rows(const std::string& path) { return path.ends_with(".jsonl") || path.ends_with(".ndjson"); }

// Refuses compressed files, whose bytes would be taken for text.
void refuse_packed(const std::string& path) {
  constexpr std::array<std::array<const char*, 2>, 5> kPacked = {{{".gz", "gunzip"},
                                                                  {".zst", "unzstd"},
                                                                  {".xz", "unxz"},
                                                                  {".zip", "unzip"},
                                                                  {".parquet", "a tool that writes JSONL"}}};
  for (const auto& [ending, tool] : kPacked) {
    if (!path.ends_with(ending)) continue;
    throw std::invalid_argument("the text '" + path + "' is packed; unpack it first, with " + tool);
  }
}

constexpr std::size_t kShownError = 300;  // characters of a message that may quote a whole text

// Finds the field's text without keeping the rest of the row.
class FieldFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  FieldFinder(const std::string& field, std::string& text) : field_(field), text_(text) {}

  bool found() const { return found_; }
  bool is_object() const { return is_object_; }
  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& value) override {
    if (depth_ == 1 && at_field_ && !found_) {
      text_.swap(value);
      found_ = true;
    }
    return true;
  }
  bool start_object(std::size_t) override {
    is_object_ = is_object_ || depth_ == 0;
    ++depth_;
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return ++depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool key(string_t& value) override {
    if (depth_ == 1) at_field_ = value == field_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    error_ = std::string(error.what()).substr(0, kShownError);
    return false;
  }

 private:
  const std::string& field_;
  std::string& text_;
  std::string error_;
  int depth_ = 0;
  bool is_object_ = false;
  bool at_field_ = false;
  bool found_ = false;
};

}  // namespace

MappedText::MappedText(const std::string& path) : path_(path) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("cannot read the text '" + path + "': " + why);
  };
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) refuse(std::strerror(errno));
  struct stat status {};
  std::string trouble;
  if (fstat(descriptor, &status) != 0) {
    trouble = std::strerror(errno);
  } else if (S_ISREG(status.st_mode) && status.st_size > 0) {
    try {
      mapped_ = MappedBytes(descriptor, static_cast<std::size_t>(status.st_size));
    } catch (const std::system_error& error) {
      trouble = error.code().message();
    }
  }
  close(descriptor);
  if (!trouble.empty()) refuse(trouble);
  if (!S_ISREG(status.st_mode)) {
    throw std::invalid_argument("the text '" + path + "' is not a regular file; write it to one first");
  }
}

void MappedText::forget_before(std::size_t end) {
  if (end <= forgotten_) return;
  mapped_.forget(forgotten_, end);
  forgotten_ = end;
}

void MappedText::require_whole() const {
  if (!mapped_.cut_off()) return;
  throw std::runtime_error("the text '" + path_ + "' was cut off while it was being read: it had " +
                           std::to_string(mapped_.bytes().size()) + " bytes, and some of them are gone");
}

DocumentReader::DocumentReader(const std::vector<std::string>& files, DocumentSettings settings, DocumentPlace from)
    : files_(files), settings_(std::move(settings)), place_(from) {}

bool DocumentReader::next(Document& document) {
  while (true) {
    if (place_.file >= files_.size()) return false;
    if (!file_) {
      refuse_packed(files_[place_.file]);
      file_ = std::make_shared<MappedText>(files_[place_.file]);
    }
    if (place_.byte < std::max<std::size_t>(1, file_->text().size())) break;  // an empty file is one document
    place_ = {place_.file + 1, 0, 1, place_.document};
    file_.reset();
  }
  const bool rows = has_rows(files_[place_.file]);
  const std::string_view mark = rows ? "\n" : kEndOfText;
  const std::string_view rest = file_->text().substr(std::min(place_.byte, file_->text().size()));
  const std::size_t found = rows || settings_.split_at_end_of_text ? rest.find(mark) : std::string_view::npos;
  const std::size_t length = std::min(found, rest.size());
  document = {file_, rest.substr(0, length), rows, place_};
  place_.byte += found == std::string_view::npos ? std::max<std::size_t>(1, length) : length + mark.size();
  ++place_.document;
  ++place_.line;
  return true;
}

void DocumentReader::forget_before(const DocumentPlace& place) {
  if (file_ && place.file == place_.file) file_->forget_before(place.byte);
}

std::string_view DocumentReader::text_of(const Document& document, std::string& row_text) const {
  if (!document.is_row) return document.raw;
  row_text.clear();
  if (document.raw.find_first_not_of(" \t\r") == std::string_view::npos) return {};
  FieldFinder finder(settings_.field, row_text);
  const bool parsed = nlohmann::json::sax_parse(document.raw, &finder);
  if (parsed && finder.found()) return row_text;
  const std::string row =
      "the text '" + files_[document.place.file] + "', line " + std::to_string(document.place.line) + ", ";
  if (!parsed) throw std::invalid_argument(row + "is no JSON: " + finder.error());
  if (!finder.is_object()) throw std::invalid_argument(row + "is no JSON object");
  throw std::invalid_argument(row + "has no text \"" + settings_.field + "\"; --field names another");
}

}  // namespace train_gpt

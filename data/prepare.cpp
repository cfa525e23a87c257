#include "data/prepare.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "data/byte_tokenizer.h"
#include "data/manifest.h"
#include "data/temporary_file.h"
#include "data/token_file.h"

namespace train_gpt {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 16;
constexpr std::int64_t kProgressBytes = std::int64_t{1} << 24;

using Progress = std::function<void(std::int64_t, std::int64_t)>;

// Bytes of text read so far, told to `progress` once in a while.
struct Meter {
  std::int64_t all = 0;
  const Progress& progress;
  std::int64_t done = 0;

  void add(std::int64_t bytes) {
    const bool due = (done + bytes) / kProgressBytes > done / kProgressBytes;
    done += bytes;
    if (progress && due) progress(done, all);
  }
};

struct stat examine(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    throw std::invalid_argument("cannot read the text '" + path + "': " + std::strerror(errno));
  }
  return status;
}

// Bytes in all. An output that is also an input would be read while it is replaced, or be lost with its manifest.
std::int64_t check_inputs(const std::vector<std::string>& text_files, const std::string& output) {
  std::int64_t bytes = 0;
  for (const std::string& path : text_files) {
    const struct stat text = examine(path);
    bytes += text.st_size;
    for (const std::string& written : {output, manifest_path(output)}) {
      struct stat existing {};
      if (stat(written.c_str(), &existing) != 0) continue;
      if (existing.st_dev != text.st_dev || existing.st_ino != text.st_ino) continue;
      throw std::invalid_argument("--output would replace '" + path +
                                  "', which is one of the texts; name another file");
    }
  }
  return bytes;
}

void check_count(std::int64_t tokens) {
  if (tokens <= kMaxTokensPerFile) return;
  throw std::invalid_argument("the texts make more than " + std::to_string(kMaxTokensPerFile) +
                              " tokens, the most that a " +
                              "token file can count; prepare several files (--train-data takes a pattern)");
}

// Writes ids one after the other, the header last.
class TokenWriter {
 public:
  explicit TokenWriter(const std::string& path) : file_(path) {
    const std::vector<char> room_for_header(static_cast<std::size_t>(kTokenHeaderBytes));
    file_.append(room_for_header);
  }

  std::int64_t count() const { return count_; }

  void append(std::span<const std::uint16_t> ids) {
    file_.append({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
    count_ += static_cast<std::int64_t>(ids.size());
    check_count(count_);
  }

  void finish() {
    const std::array<std::int32_t, 3> header = {20240520, 1, static_cast<std::int32_t>(count_)};
    file_.overwrite(0, {reinterpret_cast<const char*>(header.data()), sizeof(header)});
    file_.flush();
  }

  void commit() { file_.commit(); }

 private:
  TemporaryFile file_;
  std::int64_t count_ = 0;
};

// Appends an end-of-text id and the bytes of one file; returns how many bytes. An empty file appends nothing.
std::int64_t append_document(TokenWriter& tokens, const std::string& path, Meter& meter) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw std::invalid_argument("cannot read the text '" + path + "': " + std::strerror(errno));
  std::array<unsigned char, kReadBytes> bytes{};
  std::vector<std::uint16_t> ids;
  std::int64_t total = 0;
  while (const std::size_t read = std::fread(bytes.data(), 1, bytes.size(), file.get())) {
    ids.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(read));
    if (total == 0) ids.insert(ids.begin(), static_cast<std::uint16_t>(kByteEndOfText));
    tokens.append(ids);
    total += static_cast<std::int64_t>(read);
    meter.add(static_cast<std::int64_t>(read));
  }
  if (std::ferror(file.get())) {
    throw std::invalid_argument("cannot read the text '" + path + "': " + std::strerror(errno));
  }
  return total;
}

}  // namespace

PrepareSummary prepare_bytes(const std::vector<std::string>& text_files, const std::string& output,
                             const Progress& progress) {
  const std::int64_t all_bytes = check_inputs(text_files, output);
  check_count(all_bytes);
  TokenWriter tokens(output);
  Manifest manifest{.tokenizer = "bytes", .vocab = kByteVocab, .end_of_text = kByteEndOfText, .documents = {}};
  PrepareSummary summary;
  Meter meter{.all = all_bytes, .progress = progress};
  for (const std::string& path : text_files) {
    const std::int64_t first_token = tokens.count() + 1;
    const std::int64_t bytes = append_document(tokens, path, meter);
    if (bytes == 0) {
      ++summary.empty_files;
      continue;
    }
    manifest.documents.push_back({path, first_token, bytes});
  }
  if (tokens.count() == 0) {
    throw std::invalid_argument("there is no text: all " + std::to_string(summary.empty_files) +
                                " files are empty; 0 tokens, nothing written");
  }
  tokens.finish();
  manifest.tokens = summary.tokens = tokens.count();
  summary.documents = static_cast<std::int64_t>(manifest.documents.size());
  TemporaryFile manifest_file(manifest_path(output));
  manifest_file.append(manifest_text(manifest));
  manifest_file.flush();
  tokens.commit();
  manifest_file.commit();
  return summary;
}

}  // namespace train_gpt

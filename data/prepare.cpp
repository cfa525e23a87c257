#include "data/prepare.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include "data/learn_merges.h"
#include "data/long_text.h"
#include "data/manifest.h"
#include "data/parallel_work.h"
#include "data/prepare_journal.h"
#include "data/token_file.h"
#include "data/token_shards.h"
#include "data/train_val_split.h"

namespace train_gpt {
namespace {

constexpr std::int64_t kProgressBytes = std::int64_t{1} << 24;
constexpr std::size_t kMostInBatch = 4096;  // documents, each of which may be a file of its own
constexpr std::chrono::seconds kJournalEvery(5);

struct Stopped {};

std::string journal_path(const PrepareRequest& request) { return request.train_file + ".journal"; }

// The request as a text, which differs whenever the outcome may.
std::string described(const PrepareRequest& request, const std::string& tokenizer_name) {
  std::string text = tokenizer_name + " " + request.tokenizer_file + " " + request.documents.field + " " +
                     std::to_string(request.val_fraction) + " " + std::to_string(request.shard_tokens);
  for (const std::string& path : request.text_files) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) continue;
    text += "\n" + path + " " + std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
            std::to_string(status.st_mtim.tv_nsec);
  }
  return text;
}

// Reports to the hooks how much text has been read.
class Meter {
 public:
  Meter(std::int64_t all, const PrepareHooks& hooks) : all_(all), hooks_(hooks) {}

  void add(std::int64_t bytes) {
    const bool due = (done_ + bytes) / kProgressBytes > done_ / kProgressBytes;
    done_ += bytes;
    if (hooks_.progress && due) hooks_.progress(done_, all_);
  }

  void check_stop() const {
    if (hooks_.stop && hooks_.stop()) throw Stopped();
  }

 private:
  std::int64_t all_;
  std::int64_t done_ = 0;
  const PrepareHooks& hooks_;
};

// Documents that fit into memory together, or one long document that the threads share.
struct Batch {
  std::vector<Document> documents;
  std::int64_t bytes = 0;
  bool is_long = false;
};

// Throws if a text was cut off while it was read.
void require_whole(const Batch& batch) {
  for (const Document& document : batch.documents) document.file->require_whole();
}

class BatchReader {
 public:
  BatchReader(const PrepareRequest& request, DocumentPlace from)
      : request_(request), reader_(request.text_files, request.documents, from) {}

  bool next(Batch& batch) {
    batch = {};
    const std::size_t most = request_.batch_bytes * static_cast<std::size_t>(request_.threads);
    while (static_cast<std::size_t>(batch.bytes) < most && batch.documents.size() < kMostInBatch) {
      Document document;
      if (waiting_) {
        document = *std::exchange(waiting_, std::nullopt);
      } else if (!reader_.next(document)) {
        break;
      }
      batch.is_long = !document.is_row && document.raw.size() > 4 * request_.batch_bytes;
      if (batch.is_long && !batch.documents.empty()) {
        batch.is_long = false;
        waiting_ = std::move(document);
        break;
      }
      batch.bytes += static_cast<std::int64_t>(document.raw.size());
      batch.documents.push_back(std::move(document));
      if (batch.is_long) break;
    }
    return !batch.documents.empty();
  }

  // To be called when a batch is finished.
  void forget() { reader_.forget_before(place()); }
  // The index of the document after the batch.
  DocumentPlace place() const { return waiting_ ? waiting_->place : reader_.place(); }
  const DocumentReader& documents() const { return reader_; }

 private:
  const PrepareRequest& request_;
  DocumentReader reader_;
  std::optional<Document> waiting_;
};

std::vector<Encoder> encoders_for(const PrepareRequest& request, const Tokenizer& tokenizer) {
  std::vector<Encoder> encoders;
  for (int thread = 0; thread < request.threads; ++thread) encoders.emplace_back(tokenizer);
  return encoders;
}

// ---- one preparation ------------------------------------------------------------------------------------------------

class Preparation {
 public:
  Preparation(const PrepareRequest& request, const Tokenizer& tokenizer, const PrepareHooks& hooks,
              PrepareJournal journal)
      : request_(request),
        hooks_(hooks),
        split_(request.val_fraction, request.text_files, request.documents),
        encoders_(encoders_for(request, tokenizer)),
        meter_(check_texts(request.text_files, {}), hooks),
        journal_(std::move(journal)),
        batches_(request, journal_.place),
        train_({request.train_file, request.shard_tokens, manifest_of(tokenizer)}, journal_.train),
        validation_({request.val_file, request.shard_tokens, manifest_of(tokenizer)}, journal_.validation) {
    train_.open();
    for (std::size_t file = 0; file < journal_.place.file; ++file) {
      meter_.add(static_cast<std::int64_t>(std::filesystem::file_size(request.text_files[file])));
    }
    meter_.add(static_cast<std::int64_t>(journal_.place.byte));
  }

  // False if it was told to stop.
  bool run() {
    try {
      auto last = std::chrono::steady_clock::now();
      for (Batch batch; batches_.next(batch);) {
        if (batch.is_long) {
          encode_long(batch.documents.front());
        } else {
          encode(batch);
        }
        require_whole(batch);
        batches_.forget();
        const bool stopping = hooks_.stop && hooks_.stop();
        if (!stopping && std::chrono::steady_clock::now() - last < kJournalEvery) continue;
        write_down();
        if (stopping) throw Stopped();
        last = std::chrono::steady_clock::now();
      }
    } catch (const Stopped&) {  // also within a long document, which will begin anew
      train_.keep();
      validation_.keep();
      return false;
    }
    return true;
  }

  PrepareSummary finish() {
    PrepareSummary summary{.train_tokens = train_.total(),
                           .val_tokens = validation_.total(),
                           .documents = batches_.place().document - journal_.empty,
                           .empty = journal_.empty,
                           .unknown = unknown(),
                           .files = {}};
    if (summary.train_tokens == 0) {
      throw std::invalid_argument("there is no text: all " + std::to_string(summary.empty) +
                                  " files are empty; 0 tokens, nothing written");
    }
    const std::string unknown = ranges_of(summary.unknown.seen());
    train_.finish(unknown);
    validation_.finish(unknown);
    summary.files = train_.files();
    summary.files.insert(summary.files.end(), validation_.files().begin(), validation_.files().end());
    return summary;
  }

 private:
  UnknownCharacters unknown() const {
    UnknownCharacters all = journal_.unknown;
    for (const Encoder& encoder : encoders_) all.add(encoder.unknown());
    return all;
  }

  Manifest manifest_of(const Tokenizer& tokenizer) const {
    return {.tokenizer = request_.tokenizer_file,
            .vocab = tokenizer.size(),
            .end_of_text = tokenizer.end_of_text(),
            .documents = {},
            .unknown = {}};
  }

  const std::string& file_of(const Document& document) const { return request_.text_files[document.place.file]; }

  void encode(const Batch& batch) {
    struct Encoded {
      std::vector<std::int32_t> train;
      std::vector<std::int32_t> validation;
    };
    std::vector<Encoded> encoded(batch.documents.size());
    work_in_parallel(request_.threads, encoded.size(), [&](int thread, std::size_t i) {
      const Document& document = batch.documents[i];
      std::string row;
      const auto parts = split_.parts(document.place.document, batches_.documents().text_of(document, row));
      Encoder& encoder = encoders_[static_cast<std::size_t>(thread)];
      encoder.encode(parts.train, encoded[i].train);
      encoder.encode(parts.validation, encoded[i].validation);
    });
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      const Encoded& one = encoded[i];
      if (one.train.empty() && one.validation.empty()) ++journal_.empty;
      append_document(train_, batch.documents[i], one.train);
      append_document(validation_, batch.documents[i], one.validation);
      meter_.add(static_cast<std::int64_t>(batch.documents[i].raw.size()));
    }
  }

  void append_document(TokenShards& shards, const Document& document, const std::vector<std::int32_t>& ids) {
    if (ids.empty()) return;
    shards.begin_document(file_of(document));
    shards.append(ids);
  }

  void encode_long(const Document& document) {
    const auto parts = split_.parts(document.place.document, document.raw);
    encode_long_part(train_, document, parts.train);
    encode_long_part(validation_, document, parts.validation);
  }

  void encode_long_part(TokenShards& shards, const Document& document, std::string_view text) {
    if (text.empty()) return;
    shards.begin_document(file_of(document));
    auto done = static_cast<std::size_t>(text.data() - document.file->text().data());
    encode_long_text(
        text, encoders_,
        [&](std::span<const std::int32_t> ids, std::size_t bytes) {
          shards.append(ids);
          document.file->forget_before(done += bytes);
          meter_.add(static_cast<std::int64_t>(bytes));
          meter_.check_stop();
        },
        request_.batch_bytes);
  }

  void write_down() {
    journal_.place = batches_.place();
    journal_.train = train_.flush();
    journal_.validation = validation_.flush();
    journal_.unknown = unknown();
    write_journal(journal_path(request_), journal_);
  }

  const PrepareRequest& request_;
  const PrepareHooks& hooks_;
  TrainValSplit split_;
  std::vector<Encoder> encoders_;
  Meter meter_;
  PrepareJournal journal_;
  BatchReader batches_;
  TokenShards train_;
  TokenShards validation_;
};

void check_byte_count(const PrepareRequest& request, std::int64_t bytes) {
  if (request.tokenizer_file != "bytes" || request.shard_tokens > 0 || bytes <= kMaxTokensPerFile) return;
  throw std::invalid_argument("the texts make more than " + std::to_string(kMaxTokensPerFile) +
                              " tokens, the most that a token file can count; prepare several files, with " +
                              "--shard-tokens and a folder as --output");
}

}  // namespace

std::int64_t check_texts(const std::vector<std::string>& text_files, const std::vector<std::string>& written) {
  std::int64_t bytes = 0;
  for (const std::string& path : text_files) {
    struct stat text {};
    if (stat(path.c_str(), &text) != 0) {
      throw std::invalid_argument("cannot read the text '" + path + "': " + std::strerror(errno));
    }
    bytes += text.st_size;
    for (const std::string& output : written) {
      struct stat existing {};
      if (stat(output.c_str(), &existing) != 0) continue;
      if (existing.st_dev != text.st_dev || existing.st_ino != text.st_ino) continue;
      throw std::invalid_argument("--output would replace '" + path +
                                  "', which is one of the texts; name another place");
    }
  }
  return bytes;
}

bool can_resume(const PrepareRequest& request, const std::string& tokenizer_name) {
  const auto journal = read_journal(journal_path(request));
  return journal && journal->request == described(request, tokenizer_name);
}

PrepareSummary prepare(const PrepareRequest& request, const Tokenizer& tokenizer, const PrepareHooks& hooks) {
  std::vector<std::string> written = {request.train_file, manifest_path(request.train_file)};
  if (request.val_fraction > 0) {
    written.push_back(request.val_file);
    written.push_back(manifest_path(request.val_file));
  }
  check_byte_count(request, check_texts(request.text_files, written));
  const std::string description = described(request, tokenizer.vocabulary().name);
  PrepareJournal journal;
  const bool resumed = can_resume(request, tokenizer.vocabulary().name);
  if (resumed) journal = *read_journal(journal_path(request));
  journal.request = description;
  Preparation preparation(request, tokenizer, hooks, journal);
  if (!preparation.run()) return {.resumed = resumed, .stopped = true, .files = {}};
  PrepareSummary summary = preparation.finish();
  summary.resumed = resumed;
  std::filesystem::remove(journal_path(request));
  return summary;
}

Vocabulary learn_from_texts(const PrepareRequest& request, std::int64_t size, const std::string& pattern,
                            const PrepareHooks& hooks) {
  // Splits text as encoding will; ids do not matter yet.
  Vocabulary bytes = byte_vocabulary();
  bytes.patterns = {pattern};
  const Tokenizer cutter(std::move(bytes));
  std::vector<Encoder> encoders = encoders_for(request, cutter);
  std::vector<PieceCounts> counts(encoders.size());
  const TrainValSplit split(request.val_fraction, request.text_files, request.documents);
  BatchReader batches(request, {});
  try {
    Meter meter(check_texts(request.text_files, {}), hooks);
    for (Batch batch; batches.next(batch); meter.add(batch.bytes), batches.forget()) {
      meter.check_stop();
      if (batch.is_long) {
        const Document& document = batch.documents.front();
        count_long_text(split.parts(document.place.document, document.raw).train, encoders, counts);
        require_whole(batch);
        continue;
      }
      work_in_parallel(request.threads, batch.documents.size(), [&](int thread, std::size_t i) {
        const auto of_thread = static_cast<std::size_t>(thread);
        const Document& document = batch.documents[i];
        std::string row;
        const auto parts = split.parts(document.place.document, batches.documents().text_of(document, row));
        count_pieces(parts.train, encoders[of_thread], counts[of_thread]);
      });
      require_whole(batch);
    }
  } catch (const Stopped&) {
    throw std::runtime_error("stopped while learning the vocabulary; nothing is written");
  }
  for (std::size_t thread = 1; thread < counts.size(); ++thread) {
    counts[0].add(counts[thread]);
    counts[thread] = {};
  }
  return learn_vocabulary(counts[0], size, pattern);
}

}  // namespace train_gpt

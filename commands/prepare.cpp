#include "commands/commands.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

#include "commands/cli/wording.h"
#include "data/data_folder.h"
#include "data/glob.h"
#include "data/manifest.h"
#include "data/prepare.h"
#include "data/split_pattern.h"
#include "data/temporary_file.h"
#include "pipeline/draw/markup.h"

namespace train_gpt {
namespace {

constexpr double kUsualValFraction = 0.1;
constexpr int kInterrupted = 130;  // the status of a program that Ctrl-C ended, as in shells

volatile std::sig_atomic_t interrupted = 0;

// "prepare: 120 of 500 MB, 14.2 MB/s, 27 s to go", on one line of a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(const char* doing) : doing_(doing), begin_(std::chrono::steady_clock::now()) {}
  ~ProgressLine() {
    if (shown_) std::fputc('\n', stderr);
  }

  void show(std::int64_t done, std::int64_t all) {
    if (isatty(STDERR_FILENO) == 0) return;
    if (first_ < 0) first_ = done;  // an earlier process did the part before
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const double rate = static_cast<double>(done - first_) / std::max(seconds, 1e-9);
    const double left = rate > 0 ? static_cast<double>(all - done) / rate : 0;
    std::fprintf(stderr, "\r%s: %lld of %lld MB, %.1f MB/s, %.0f s to go   ", doing_,
                 static_cast<long long>(done / 1000000), static_cast<long long>(all / 1000000), rate * 1e-6, left);
    shown_ = true;
  }

 private:
  const char* doing_;
  std::chrono::steady_clock::time_point begin_;
  std::int64_t first_ = -1;
  bool shown_ = false;
};

PrepareHooks hooks_showing(ProgressLine& line) {
  return {[&line](std::int64_t done, std::int64_t all) { line.show(done, all); }, [] { return interrupted != 0; }};
}

bool is_token_file(const std::string& output) { return output.ends_with(".bin"); }

PrepareRequest request_from(const Options& options) {
  const PrepareOptions& prepare = options.prepare;
  const bool one_file = is_token_file(prepare.output);
  PrepareRequest request;
  request.text_files = expand_glob(prepare.text, "--text");
  request.documents.field = prepare.field;
  request.train_file = one_file ? prepare.output : prepare.output + "/train.bin";
  request.val_file = one_file ? "" : prepare.output + "/val.bin";
  request.val_fraction = prepare.val_fraction.value_or(one_file ? 0 : kUsualValFraction);
  request.shard_tokens = prepare.shard_tokens;
  request.threads = options.run.threads > 0 ? options.run.threads
                                            : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return request;
}

void write_text_file(const std::string& path, const std::string& text) {
  TemporaryFile file(path);
  file.append(text);
  file.flush();
  file.commit();
}

// The vocabulary that --tokenizer names; one that an earlier, interrupted preparation learned is not learned again.
Vocabulary find_vocabulary(const PrepareOptions& prepare, const PrepareRequest& request, const std::string& written) {
  if (request.tokenizer_file == "bytes") return byte_vocabulary();
  if (prepare.tokenizer != "learn" && !prepare.tokenizer.empty())
    return read_vocabulary(prepare.tokenizer, prepare.pattern);
  const std::string pattern = pattern_named(prepare.pattern.empty() ? "gpt2" : prepare.pattern);
  const std::string name = "learned " + std::to_string(prepare.vocab) + " " + pattern;
  Vocabulary vocabulary;
  if (can_resume(request, name)) {
    vocabulary = read_vocabulary(written);
  } else {
    ProgressLine line("learn the vocabulary");
    vocabulary = learn_from_texts(request, prepare.vocab, pattern, hooks_showing(line));
  }
  vocabulary.name = name;
  return vocabulary;
}

void say(const PrepareSummary& summary, const Vocabulary& vocabulary) {
  std::string text;
  const auto files = [](std::size_t n) {
    return n == 1 ? "" : " and " + counted(static_cast<std::int64_t>(n - 1), "more file");
  };
  text += summary.files.front() + files(summary.files.size()) + ": " +
          std::to_string(summary.train_tokens + summary.val_tokens) + " tokens of " +
          counted(summary.documents, "document");
  if (summary.val_tokens > 0) text += ", " + std::to_string(summary.val_tokens) + " of them to validate";
  if (summary.empty > 0) text += ", " + counted(summary.empty, "empty file") + " left out";
  text += "; vocabulary " + std::to_string(vocabulary.size()) + ", see " + manifest_path(summary.files.front());
  std::printf("%s\n", printable(text).c_str());
}

// Names some of them, once; a manifest has all of them.
void say_unknown(const std::set<char32_t>& unknown, const std::string& manifest) {
  constexpr std::size_t kMostRanges = 12;
  if (unknown.empty()) return;
  const auto number = static_cast<std::int64_t>(unknown.size());
  const std::string ranges = ranges_of(unknown, kMostRanges);
  const std::string text = "note: " + counted(number, "character") + " of the text (" + ranges + ") " +
                           (number == 1 ? "is" : "are") + " newer than the Unicode tables of this machine's PCRE2 (" +
                           unicode_version() +
                           "), or nobody's, and cut as symbols: tokenizers with newer tables may give other ids there, "
                           "and learn other merges. " +
                           manifest + " lists " + (number == 1 ? "it" : "them all");
  std::printf("%s\n", printable(text).c_str());
}

}  // namespace

int run_prepare(const Options& options) {
  const PrepareOptions& options_of = options.prepare;
  const bool one_file = is_token_file(options_of.output);
  PrepareRequest request = request_from(options);
  const bool bytes = options_of.tokenizer == "bytes" || (options_of.tokenizer.empty() && one_file);
  // Other token files, of other tokenizers, may lie beside a single token file.
  const std::filesystem::path train_file = request.train_file;
  request.tokenizer_file = bytes      ? "bytes"
                           : one_file ? train_file.filename().string() + ".tokenizer.json"
                                      : "tokenizer.json";
  const std::string tokenizer_path = (train_file.parent_path() / request.tokenizer_file).string();
  request.documents.split_at_end_of_text = !bytes;
  if (!bytes) check_texts(request.text_files, {tokenizer_path});

  interrupted = 0;
  const auto before = std::signal(SIGINT, [](int) { interrupted = 1; });
  const Vocabulary vocabulary = find_vocabulary(options_of, request, tokenizer_path);
  if (!vocabulary.json.empty()) write_text_file(tokenizer_path, vocabulary.json);
  PrepareSummary summary;
  {
    ProgressLine line("prepare");
    summary = prepare(request, Tokenizer(vocabulary), hooks_showing(line));
  }
  std::signal(SIGINT, before);
  if (summary.stopped) {
    std::printf("stopped before the end; the same command goes on from there\n");
    return kInterrupted;
  }
  if (summary.resumed) std::printf("went on where an earlier preparation was ended\n");
  say(summary, vocabulary);
  say_unknown(summary.unknown.seen(), manifest_path(summary.files.back()));
  return 0;
}

}  // namespace train_gpt

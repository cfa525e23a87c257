#include "commands/commands.h"

#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <vector>

#include "data/byte_tokenizer.h"
#include "data/glob.h"
#include "data/manifest.h"
#include "data/prepare.h"

namespace train_gpt {
namespace {

void show_progress(std::int64_t done, std::int64_t all) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\rprepare: %lld of %lld MB", static_cast<long long>(done / 1000000),
               static_cast<long long>(all / 1000000));
  if (all - done < (std::int64_t{1} << 24)) std::fputc('\n', stderr);
}

}  // namespace

int run_prepare(const Options& options) {
  const PrepareOptions& prepare = options.prepare;
  if (prepare.tokenizer != "bytes") {
    throw std::invalid_argument(
        "--tokenizer: '" + prepare.tokenizer +
        "' is not supported: GPT-2's byte-pair vocabularies are not read yet; give bytes, or take a " +
        "token file that llm.c's scripts have prepared");
  }
  const std::vector<std::string> texts = expand_glob(prepare.text, "--text");
  const PrepareSummary summary = prepare_bytes(texts, prepare.output, show_progress);
  const std::string left_out =
      summary.empty_files == 0 ? "" : ", " + std::to_string(summary.empty_files) + " empty files left out";
  std::printf("%s: %lld tokens of %lld documents%s; vocabulary %lld, see %s\n", prepare.output.c_str(),
              static_cast<long long>(summary.tokens), static_cast<long long>(summary.documents), left_out.c_str(),
              static_cast<long long>(kByteVocab), manifest_path(prepare.output).c_str());
  return 0;
}

}  // namespace train_gpt

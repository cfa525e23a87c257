// Every reader of files, under libFuzzer: whatever the bytes are, they are used or refused with a message. FUZZ_READER
// names the reader. The search is for crashes, overflows, endless loops and any other exception.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "commands/report/report.h"
#include "commands/run/checkpoint_manifest.h"
#include "data/documents.h"
#include "data/manifest.h"
#include "data/multiple_choice.h"
#include "data/token_file.h"
#include "data/tokenizer.h"
#include "data/vocabulary.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"
#include "pipeline/planner/unit_profile.h"
#include "pipeline/schedule/csv.h"
#include "pipeline/simulate/check_schedule.h"
#include "pipeline/train/state_file.h"

namespace {

using namespace train_gpt;

constexpr std::int64_t kMost = 4096;  // elements that are looked at of one tensor

// A folder of this process, in memory where the system has such a place.
const std::string& folder() {
  static const std::string path = [] {
    std::string name =
        std::filesystem::is_directory("/dev/shm") ? "/dev/shm/train_gpt_fuzz_XXXXXX" : "/tmp/fuzz_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    static std::string removed = name;
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(removed, ignored);
    });
    return name;
  }();
  return path;
}

std::string file_with(const std::string& name, const std::string& bytes) {
  std::string path = folder() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

void read_tokens(const std::string& bytes) {
  const TokenFile file(file_with("tokens.bin", bytes));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min<std::int64_t>(file.token_count(), kMost)));
  file.read(ids.data(), file.token_count() - static_cast<std::int64_t>(ids.size()),
            static_cast<std::int64_t>(ids.size()), 50257);
  file.check_ids(50257);
}

void read_model(const std::string& bytes) {
  const ModelFile file(file_with("model.bin", bytes));
  std::vector<float> values(static_cast<std::size_t>(kMost));
  for (const TensorInfo& tensor : model_tensors(file.config())) {
    const std::int64_t count = std::min(tensor.elements, kMost);
    file.read(values.data(), tensor, tensor.elements - count, count);
  }
}

void read_optimizer(const std::string& bytes) { OptimizerFile(file_with("optimizer.bin", bytes)); }

void read_checkpoint_manifest(const std::string& bytes) { to_json(manifest_from_json(bytes)); }

void read_token_manifest(const std::string& bytes) {
  file_with("tokens.bin.json", bytes);
  read_manifest(folder() + "/tokens.bin");
}

void read_safetensors(const std::string& bytes) {
  file_with("model.safetensors", bytes);
  const SafetensorsFolder tensors(folder());
  std::vector<float> values(static_cast<std::size_t>(kMost));
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (tensor.dtype == TensorDtype::other) continue;
    tensor.read(values.data(), 0, std::min(tensor.elements(), kMost));
  }
}

void read_rows(const std::string& bytes) {
  const std::vector<std::string> files = {file_with("rows.jsonl", bytes)};
  DocumentReader reader(files, {});
  std::string text;
  for (Document document; reader.next(document);) reader.text_of(document, text);
}

void read_texts(const std::string& bytes) {
  const std::vector<std::string> files = {file_with("text.txt", bytes)};
  DocumentReader reader(files, {});
  std::string text;
  for (Document document; reader.next(document);) reader.text_of(document, text);
}

void read_choices(const std::string& bytes) { read_questions(file_with("questions.jsonl", bytes)); }

void read_vocabulary_named(const std::string& name, const std::string& bytes) {
  const Tokenizer tokenizer(read_vocabulary(file_with(name, bytes)));
  const std::vector<std::int32_t> ids = tokenizer.encode("Hello, world 123\n\xc3\xa4\xff");
  for (const std::int32_t id : ids) tokenizer.bytes_of(id);
}

void read_schedule(const std::string& bytes) { check_schedule(parse_schedule_csv(bytes, "fuzzed")); }

void read_profile(const std::string& bytes) { load_profile(file_with("profile.json", bytes)); }

void read_run_log(const std::string& bytes) {
  html_report(read_log(file_with("log.jsonl", bytes)), RunCondition::over);
}

void read_rank_state(const std::string& bytes) {
  file_with("state.0", bytes);
  for (const RankState& state : read_states(folder())) is_gone(state);
}

using Reader = std::function<void(const std::string&)>;

const Reader& chosen() {
  static const std::map<std::string, Reader> readers = {
      {"tokens", read_tokens},
      {"model", read_model},
      {"optimizer", read_optimizer},
      {"checkpoint_manifest", read_checkpoint_manifest},
      {"token_manifest", read_token_manifest},
      {"safetensors", read_safetensors},
      {"rows", read_rows},
      {"texts", read_texts},
      {"questions", read_choices},
      {"tokenizer", [](const std::string& bytes) { read_vocabulary_named("tokenizer.json", bytes); }},
      {"tiktoken", [](const std::string& bytes) { read_vocabulary_named("fuzzed.tiktoken", bytes); }},
      {"schedule", read_schedule},
      {"profile", read_profile},
      {"log", read_run_log},
      {"state", read_rank_state},
  };
  const char* name = std::getenv("FUZZ_READER");
  const auto found = readers.find(name == nullptr ? "" : name);
  if (found != readers.end()) return found->second;
  std::fprintf(stderr, "FUZZ_READER names none of:");
  for (const auto& [known, reader] : readers) std::fprintf(stderr, " %s", known.c_str());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    chosen()({reinterpret_cast<const char*>(data), size});
  } catch (const std::invalid_argument&) {
  } catch (const std::runtime_error&) {
  }
  return 0;
}

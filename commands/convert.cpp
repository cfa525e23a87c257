#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "commands/commands.h"
#include "commands/run/run_tokenizer.h"
#include "commands/run/setup.h"
#include "data/temporary_file.h"
#include "model/checkpoint.h"
#include "model/huggingface.h"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

void write_text_file(const std::string& path, const std::string& text) {
  TemporaryFile file(path);
  file.append(text);
  file.flush();
  file.commit();
}

// The file that `transformers` needs beside tokenizer.json to find the right class.
void write_tokenizer_files(const Tokenizer& tokenizer, const ModelConfig& model, const std::string& folder) {
  Vocabulary vocabulary = tokenizer.vocabulary();
  if (vocabulary.json.empty()) {  // bytes, which have no vocabulary file
    vocabulary.added = {{vocabulary.tokens[static_cast<std::size_t>(vocabulary.end_of_text)], vocabulary.end_of_text}};
    vocabulary.json = tokenizer_json(vocabulary);
  }
  write_text_file(folder + "/tokenizer.json", vocabulary.json);
  const std::string end_of_text = vocabulary.tokens[static_cast<std::size_t>(vocabulary.end_of_text)];
  write_text_file(folder + "/tokenizer_config.json",
                  "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"bos_token\": \"" + end_of_text +
                      "\",\n  \"eos_token\": \"" + end_of_text + "\",\n  \"unk_token\": \"" + end_of_text +
                      "\",\n  \"model_max_length\": " + std::to_string(model.max_seq_len) + "\n}\n");
}

}  // namespace

int run_convert(const Options& options) {
  const std::string input = init_model_file(options);
  const std::string& output = options.convert.output;
  const ModelFile model(input);
  const std::optional<Tokenizer> tokenizer = tokenizer_of_model(input, model.config());
  const Precision precision = options.convert.precision.value_or(model.precision());
  const bool to_file = output.ends_with(".bin");
  std::error_code error;
  for (const fs::path& written : {fs::path(output), fs::path(output) / "model.safetensors"}) {
    if (fs::equivalent(input, written, error)) {
      throw std::invalid_argument("--output would replace '" + input + "', the model that is read; name another place");
    }
  }
  if (to_file) {
    const fs::path folder = fs::path(output).parent_path();
    if (!folder.empty()) fs::create_directories(folder);
    write_model_file(output, model, precision);
    if (tokenizer && !tokenizer->vocabulary().json.empty()) {
      write_text_file((folder / "tokenizer.json").string(), tokenizer->vocabulary().json);
    }
  } else {
    HuggingFaceSettings settings{
        .as_bf16 = precision == Precision::bf16, .shard_bytes = options.convert.shard_bytes, .end_of_text = {}};
    if (tokenizer) settings.end_of_text = tokenizer->end_of_text();
    write_huggingface(output, model.config(), settings,
                      [&](float* out, const TensorInfo& tensor, std::int64_t begin, std::int64_t count) {
                        model.read(out, tensor, begin, count);
                      });
    if (tokenizer) write_tokenizer_files(*tokenizer, model.config(), output);
  }
  std::printf("%s: %lld parameters in %s%s\n", output.c_str(), static_cast<long long>(parameter_count(model.config())),
              precision == Precision::bf16 ? "bf16" : "fp32",
              tokenizer ? ", with the tokenizer" : ", without a tokenizer");
  return 0;
}

}  // namespace train_gpt

#include "commands/run/run_tokenizer.h"

#include <filesystem>
#include <stdexcept>

#include "data/data_folder.h"
#include "data/glob.h"
#include "data/manifest.h"
#include "data/temporary_file.h"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::optional<Tokenizer> tokenizer_of_tokens(const std::string& pattern, const std::string& option) {
  for (const std::string& token_file : expand_glob(pattern, option)) {
    const std::optional<Manifest> manifest = read_manifest(token_file);
    if (!manifest) continue;
    if (manifest->tokenizer == "bytes") return Tokenizer(byte_vocabulary());
    const fs::path file = fs::path(token_file).parent_path() / manifest->tokenizer;
    if (fs::exists(file)) return Tokenizer(read_vocabulary(file.string()));
  }
  return std::nullopt;
}

std::optional<Tokenizer> tokenizer_of_model(const std::string& init, const ModelConfig& model) {
  const fs::path path = init;
  const std::string file = tokenizer_in(fs::is_directory(path) ? path.string() : path.parent_path().string());
  if (file.empty()) {
    return is_byte_level(model.vocab) ? std::optional<Tokenizer>(std::in_place, byte_vocabulary()) : std::nullopt;
  }
  std::optional<Tokenizer> tokenizer(std::in_place, read_vocabulary(file));
  if (tokenizer->size() <= model.vocab) return tokenizer;
  throw std::invalid_argument("'" + file + "' has " + std::to_string(tokenizer->size()) + " ids, but the model " +
                              init + " has " + std::to_string(model.vocab) +
                              ": it is not this model's; name another with " + "--tokenizer");
}

Tokenizer tokenizer_named(const std::string& name) {
  return Tokenizer(name == "bytes" ? byte_vocabulary() : read_vocabulary(name));
}

void keep_tokenizer(const std::optional<Tokenizer>& tokenizer, const std::string& folder) {
  const std::string path = (fs::path(folder) / "tokenizer.json").string();
  if (!tokenizer || tokenizer->vocabulary().json.empty()) {
    fs::remove(path);
    return;
  }
  TemporaryFile file(path);
  file.append(tokenizer->vocabulary().json);
  file.flush();
  file.commit();
}

}  // namespace train_gpt

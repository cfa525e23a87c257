#include "data/manifest.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/glob.h"
#include "data/temporary_file.h"
#include "data/token_file.h"

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "train_gpt token manifest";
constexpr int kVersion = 1;
constexpr std::int64_t kLargestVocab = 2147483647;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw std::invalid_argument("manifest '" + path + "' " + reason + "; prepare the token file again, or remove the " +
                              "manifest and give --vocab");
}

std::int64_t whole_number(const std::string& path, const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(path, std::string("has no \"") + key + "\"");
  if (!found->is_number_integer() || (found->is_number_unsigned() && found->get<std::uint64_t>() > INT64_MAX)) {
    // For a list the message names the type alone: writing it out takes stack in proportion to its depth.
    const std::string shown = found->is_structured() ? found->type_name() : found->dump().substr(0, 40);
    refuse(path, std::string("has a \"") + key + "\" that is no whole number: " + shown);
  }
  return found->get<std::int64_t>();
}

std::string text(const std::string& path, const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) refuse(path, std::string("has no text \"") + key + "\"");
  return found->get<std::string>();
}

Manifest parse(const std::string& path, const Json& root) {
  if (!root.is_object()) refuse(path, "is no JSON object");
  if (text(path, root, "format") != kFormat) refuse(path, std::string("is not a \"") + kFormat + "\"");
  if (const std::int64_t version = whole_number(path, root, "version"); version != kVersion) {
    refuse(path, "has version " + std::to_string(version) + " instead of " + std::to_string(kVersion));
  }
  Manifest manifest;
  manifest.tokenizer = text(path, root, "tokenizer");
  manifest.vocab = whole_number(path, root, "vocabulary");
  manifest.end_of_text = whole_number(path, root, "end_of_text");
  manifest.tokens = whole_number(path, root, "tokens");
  if (manifest.vocab < 1 || manifest.vocab > kLargestVocab) {
    refuse(path, "has the vocabulary " + std::to_string(manifest.vocab) + " instead of 1 to 2147483647");
  }
  const auto documents = root.find("documents");
  if (documents == root.end() || !documents->is_array()) refuse(path, "has no list \"documents\"");
  for (const Json& document : *documents) {
    if (!document.is_object()) refuse(path, "has a document that is no JSON object");
    manifest.documents.push_back({text(path, document, "file"), whole_number(path, document, "first_token"),
                                  whole_number(path, document, "tokens")});
  }
  return manifest;
}

}  // namespace

std::string manifest_path(const std::string& token_file) { return token_file + ".json"; }

std::string manifest_text(const Manifest& manifest) {
  Json documents = Json::array();
  for (const Manifest::Document& document : manifest.documents) {
    documents.push_back({{"file", document.file}, {"first_token", document.first_token}, {"tokens", document.tokens}});
  }
  Json root = {{"format", kFormat},
               {"version", kVersion},
               {"tokenizer", manifest.tokenizer},
               {"vocabulary", manifest.vocab},
               {"end_of_text", manifest.end_of_text},
               {"tokens", manifest.tokens},
               {"documents", documents}};
  if (!manifest.unknown.empty()) root["unknown_characters"] = manifest.unknown;
  // File names may hold bytes that are not UTF-8, JSON may not.
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Manifest> read_manifest(const std::string& token_file) {
  const std::string path = manifest_path(token_file);
  std::ifstream file(path);
  if (!file) return std::nullopt;
  Json root;
  try {
    root = Json::parse(file);
  } catch (const Json::exception& error) {
    refuse(path, "cannot be read: " + std::string(error.what()).substr(0, 300));  // it may quote a whole text
  }
  Manifest manifest = parse(path, root);
  const std::int64_t counted = TokenFile(token_file).token_count();
  if (manifest.tokens != counted) {
    refuse(path, "speaks of " + std::to_string(manifest.tokens) + " tokens, but '" + token_file + "' holds " +
                     std::to_string(counted));
  }
  return manifest;
}

std::optional<std::int64_t> vocab_of(const std::string& pattern, const std::string& option) {
  std::optional<std::int64_t> vocab;
  std::string origin;
  for (const std::string& token_file : expand_glob(pattern, option)) {
    const std::optional<Manifest> manifest = read_manifest(token_file);
    if (!manifest) continue;
    if (vocab && *vocab != manifest->vocab) {
      throw std::invalid_argument(option + ": the manifests of '" + origin + "' (vocabulary " + std::to_string(*vocab) +
                                  ") and '" + token_file + "' (vocabulary " + std::to_string(manifest->vocab) +
                                  ") disagree; use files of one tokenizer");
    }
    vocab = manifest->vocab;
    origin = token_file;
  }
  return vocab;
}

}  // namespace train_gpt

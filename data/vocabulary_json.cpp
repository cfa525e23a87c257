// Hugging Face's tokenizer.json: read for byte-level BPE without a normalizer, and written.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "data/byte_alphabet.h"
#include "data/split_pattern.h"
#include "data/utf8.h"
#include "data/vocabulary_file.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;

// Reads one file; its methods throw naming it.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    vocabulary_.name = path;
    vocabulary_.json = read_whole_file(path);
  }

  Vocabulary read() {
    Json root;
    try {
      root = Json::parse(vocabulary_.json);
    } catch (const nlohmann::json::exception& error) {
      refuse("is no JSON: " + std::string(error.what()).substr(0, 300));  // it may quote a whole text
    }
    if (!root.is_object()) refuse("is no JSON object");
    const Json& model = member(root, "model", "");
    if (text(model, "type") != "BPE") refuse("has a model of another type than BPE: " + shown(model, "type"));
    require_none(root, "normalizer",
                 "which changes text before it is cut: text could not be told back; prepare the text that way and set "
                 "\"normalizer\": null");
    read_model(model);
    read_added_tokens(root);
    read_pre_tokenizer(member(root, "pre_tokenizer", ""));
    return std::move(vocabulary_);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const { refuse_vocabulary(path_, reason); }

  static bool has(const Json& object, const char* key) {
    return object.is_object() && object.contains(key) && !object.at(key).is_null();
  }
  const Json& member(const Json& object, const char* key, const std::string& where) const {
    if (!has(object, key)) refuse("has no \"" + std::string(key) + "\"" + where);
    return object.at(key);
  }
  static std::string text(const Json& object, const char* key) {
    return has(object, key) && object.at(key).is_string() ? object.at(key).get<std::string>() : "";
  }
  static bool flag(const Json& object, const char* key, bool otherwise) {
    return has(object, key) && object.at(key).is_boolean() ? object.at(key).get<bool>() : otherwise;
  }
  static std::string shown(const Json& object, const char* key) {
    const std::string value = text(object, key);
    return value.empty() ? "none" : "\"" + value.substr(0, 80) + "\"";
  }
  void require_none(const Json& object, const char* key, const std::string& why) const {
    if (!has(object, key) || object.at(key) == "" || object.at(key) == false) return;
    refuse("has a \"" + std::string(key) + "\" (" + shown(object.at(key), "type") + "), " + why);
  }

  void read_model(const Json& model) {
    const std::string not_byte_level = "which byte-level vocabularies do not have; others are not read";
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
      require_none(model, key, not_byte_level);
    }
    vocabulary_.whole_pieces_first = flag(model, "ignore_merges", false);
    const Json& vocab = member(model, "vocab", " in its model");
    if (!vocab.is_object()) refuse("has a \"vocab\" that is no JSON object of tokens and ids");
    for (const auto& [token, id] : vocab.items()) {
      place_token(vocabulary_, id_in(id), from_byte_alphabet(token), vocab.size(), path_);
    }
    const Json& merges = member(model, "merges", " in its model");
    if (!merges.is_array()) refuse("has \"merges\" that are no list");
    const TokenIds ids = token_ids(vocabulary_);
    for (const Json& merge : merges) read_merge(merge, ids);
  }

  std::int64_t id_in(const Json& id) const {
    if (!id.is_number_integer()) refuse("gives a token an id that is no whole number");
    return id.get<std::int64_t>();
  }

  // "left right", or ["left", "right"].
  void read_merge(const Json& merge, const TokenIds& ids) {
    const std::string where = "merge " + std::to_string(vocabulary_.merges.size());
    std::string left;
    std::string right;
    if (merge.is_string()) {
      const std::string both = merge.get<std::string>();
      const std::size_t space = std::min(both.find(' '), both.size());
      left = both.substr(0, space);
      right = both.substr(std::min(space + 1, both.size()));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    if (left.empty() || right.empty()) refuse(where + " is not two tokens");
    vocabulary_.merges.push_back(merge_of(ids, from_byte_alphabet(left), from_byte_alphabet(right), path_, where));
  }

  void read_added_tokens(const Json& root) {
    if (!has(root, "added_tokens")) return;
    const Json& list = root.at("added_tokens");
    if (!list.is_array()) refuse("has \"added_tokens\" that are no list");
    const std::size_t entries = vocabulary_.tokens.size() + list.size();
    for (const Json& token : list) {
      const std::string content = text(token, "content");
      const std::int64_t id = id_in(member(token, "id", " in an added token"));
      if (content.empty()) refuse("has an added token without \"content\"");
      for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        if (flag(token, key, false)) {
          refuse("has the added token '" + content.substr(0, 80) + "' with \"" + key +
                 "\": true, which takes text beside the token; set it to false");
        }
      }
      // The model's list may also have the token, in the byte alphabet.
      if (id >= 0 && id < vocabulary_.size()) vocabulary_.tokens[static_cast<std::size_t>(id)].clear();
      place_token(vocabulary_, id, content, entries, path_);
      vocabulary_.added.push_back({content, static_cast<std::int32_t>(id), flag(token, "normalized", false)});
    }
    std::sort(vocabulary_.added.begin(), vocabulary_.added.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
  }

  // Steps that split by a regular expression, then ByteLevel, which also splits by GPT-2's unless told not to.
  void read_pre_tokenizer(const Json& step) {
    const std::string type = text(step, "type");
    if (type == "Sequence") {
      const Json& steps = member(step, "pretokenizers", " in its sequence of pre-tokenizers");
      if (!steps.is_array()) refuse("has \"pretokenizers\" that are no list");
      for (const Json& one : steps) {
        if (text(one, "type") == "Sequence") refuse("has a sequence of pre-tokenizers within another");
        read_pre_tokenizer(one);
      }
    } else if (type == "ByteLevel") {
      if (flag(step, "add_prefix_space", true)) {
        refuse("has \"add_prefix_space\": true, which puts a space before text that has none; set it to false");
      }
      if (flag(step, "use_regex", true)) vocabulary_.patterns.push_back(pattern_named("gpt2"));
    } else if (type == "Split") {
      read_split(step);
    } else if (type == "Digits") {
      vocabulary_.patterns.emplace_back(flag(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else {
      refuse("cuts text by a pre-tokenizer that is not read: " + shown(step, "type") +
             "; ByteLevel, Split and Digits are");
    }
  }

  void read_split(const Json& step) {
    const std::string behavior = text(step, "behavior");
    const bool inverted = flag(step, "invert", false);
    // The inverted form removes the text between matches; its patterns match everything.
    if (behavior != "Isolated" && !(behavior == "Removed" && inverted)) {
      refuse("has a Split with the behavior " + shown(step, "behavior") + "; \"Isolated\" is read");
    }
    const Json& pattern = member(step, "pattern", " in a Split");
    if (!text(pattern, "String").empty()) {
      vocabulary_.patterns.push_back("\\Q" + text(pattern, "String") + "\\E");
    } else if (!text(pattern, "Regex").empty()) {
      vocabulary_.patterns.push_back(text(pattern, "Regex"));
    } else {
      refuse("has a Split whose pattern is neither \"Regex\" nor \"String\"");
    }
  }

  std::string path_;
  Vocabulary vocabulary_;
};

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer(const std::vector<std::string>& patterns) {
  if (patterns.size() == 1 && patterns.front() == pattern_named("gpt2")) return byte_level(true);
  Json steps = Json::array();
  for (const std::string& pattern : patterns) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(byte_level(false));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

Json added_tokens(const Vocabulary& vocabulary) {
  Json list = Json::array();
  for (const Vocabulary::AddedToken& token : vocabulary.added) {
    list.push_back({{"id", token.id},
                    {"content", token.text},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", token.normalized},
                    {"special", true}});
  }
  return list;
}

}  // namespace

Vocabulary read_tokenizer_json(const std::string& path) { return Reader(path).read(); }

std::string tokenizer_json(const Vocabulary& vocabulary) {
  Json vocab = Json::object();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const bool added = std::any_of(vocabulary.added.begin(), vocabulary.added.end(),
                                   [&](const auto& token) { return token.id == static_cast<std::int32_t>(id); });
    const std::string& bytes = vocabulary.tokens[id];
    if (!added && !bytes.empty()) vocab[in_byte_alphabet(bytes)] = id;
  }
  Json merges = Json::array();
  const auto letters = [&](std::int32_t id) {
    return in_byte_alphabet(vocabulary.tokens[static_cast<std::size_t>(id)]);
  };
  for (const Vocabulary::Merge& merge : vocabulary.merges)
    merges.push_back(letters(merge.left) + " " + letters(merge.right));
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", vocabulary.whole_pieces_first},
                      {"vocab", vocab},
                      {"merges", merges}};
  const Json root = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens(vocabulary)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", pre_tokenizer(vocabulary.patterns)},
                     {"post_processor", nullptr},
                     {"decoder", byte_level(true)},
                     {"model", model}};
  return root.dump(1) + "\n";
}

}  // namespace train_gpt

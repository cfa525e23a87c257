#include "model/huggingface.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace train_gpt {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// The form in which a tensor is kept. Sizes are in units of C unless they follow from V or the longest sequence.
struct Keeping {
  const char* name;   // after "transformer." or "transformer.h.N."
  std::int64_t rows;  // ours, (outputs, inputs); 0: a vector
  std::int64_t columns;
  bool transposed;  // the module's Conv1D keeps (inputs, outputs)
};

Keeping keeping(TensorKind kind) {
  switch (kind) {
    case TensorKind::wte:
      return {"wte.weight", -1, 1, false};
    case TensorKind::wpe:
      return {"wpe.weight", -1, 1, false};
    case TensorKind::ln1w:
      return {"ln_1.weight", 0, 1, false};
    case TensorKind::ln1b:
      return {"ln_1.bias", 0, 1, false};
    case TensorKind::qkvw:
      return {"attn.c_attn.weight", 3, 1, true};
    case TensorKind::qkvb:
      return {"attn.c_attn.bias", 0, 3, false};
    case TensorKind::attprojw:
      return {"attn.c_proj.weight", 1, 1, true};
    case TensorKind::attprojb:
      return {"attn.c_proj.bias", 0, 1, false};
    case TensorKind::ln2w:
      return {"ln_2.weight", 0, 1, false};
    case TensorKind::ln2b:
      return {"ln_2.bias", 0, 1, false};
    case TensorKind::fcw:
      return {"mlp.c_fc.weight", 4, 1, true};
    case TensorKind::fcb:
      return {"mlp.c_fc.bias", 0, 4, false};
    case TensorKind::fcprojw:
      return {"mlp.c_proj.weight", 1, 4, true};
    case TensorKind::fcprojb:
      return {"mlp.c_proj.bias", 0, 1, false};
    case TensorKind::lnfw:
      return {"ln_f.weight", 0, 1, false};
    case TensorKind::lnfb:
      return {"ln_f.bias", 0, 1, false};
    case TensorKind::headw:
      return {"lm_head.weight", -1, 1, false};
  }
  throw std::logic_error("a tensor without a name");
}

// (rows, columns) of our tensor without padding; rows 0: a vector of `columns`.
std::pair<std::int64_t, std::int64_t> sizes(TensorKind kind, const ModelConfig& config) {
  const Keeping kept = keeping(kind);
  if (kept.rows >= 0) return {kept.rows * config.hidden, kept.columns * config.hidden};
  return {kind == TensorKind::wpe ? config.max_seq_len : config.vocab, config.hidden};
}

std::vector<std::int64_t> kept_shape(TensorKind kind, const ModelConfig& config) {
  const auto [rows, columns] = sizes(kind, config);
  if (rows == 0) return {columns};
  return keeping(kind).transposed ? std::vector{columns, rows} : std::vector{rows, columns};
}

std::string name_of(TensorKind kind, std::int64_t layer, const std::string& prefix) {
  const std::string name = keeping(kind).name;
  if (kind == TensorKind::headw) return name;
  const bool in_layer = kind >= TensorKind::ln1w && kind <= TensorKind::fcprojb;
  return prefix + (in_layer ? "h." + std::to_string(layer) + "." : "") + name;
}

// The first element of our tensor in theirs, in which shards of the vocabulary follow each other.
std::int64_t first_element(const ModelConfig& config, const TensorInfo& tensor) {
  return tensor.shard == 0 ? 0 : vocabulary_shard(config, tensor.shard).begin * config.hidden;
}

std::int64_t layer_of(const TensorInfo& tensor) { return (tensor.unit - 1) / 2; }

// ---- config.json ----------------------------------------------------------------------------------------------------

// Reads settings; those that would change the computation must have GPT-2's values.
class Settings {
 public:
  explicit Settings(const std::string& path) : path_(path) {
    const MappedFile file(path);
    try {
      json_ = Json::parse(file.bytes().begin(), file.bytes().end());
    } catch (const Json::exception& error) {
      refuse("is no JSON: " + std::string(error.what()).substr(0, 300));  // it may quote a whole text
    }
    if (!json_.is_object()) refuse("is no JSON object");
  }

  std::int64_t size(const char* key, std::int64_t otherwise) const {
    if (!json_.contains(key)) return otherwise;
    const Json& value = json_[key];
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > INT32_MAX) {
      refuse(std::string(key) + " is " + shown(value) + "; a whole number from 1 on is needed");
    }
    return value.get<std::int64_t>();
  }
  bool flag(const char* key, bool otherwise) const {
    return json_.contains(key) && json_[key].is_boolean() ? json_[key].get<bool>() : otherwise;
  }
  // The setting may be missing, null, or one of these.
  void require(const char* key, const std::vector<Json>& known) const {
    if (!json_.contains(key) || json_[key].is_null()) return;
    if (std::find(known.begin(), known.end(), json_[key]) != known.end()) return;
    refuse(std::string(key) + " is " + shown(json_[key]) + "; only " + known.front().dump() + " is computed here");
  }
  // For a list or an object the type alone: writing it out takes stack in proportion to its depth.
  static std::string shown(const Json& value) {
    return value.is_structured() ? value.type_name() : value.dump().substr(0, 40);
  }
  void refuse [[noreturn]] (const std::string& why) const { throw std::invalid_argument(path_ + ": " + why); }

 private:
  std::string path_;
  Json json_;
};

ModelConfig read_config(const std::string& path) {
  const Settings settings(path);
  settings.require("model_type", {"gpt2"});
  ModelConfig config;
  config.layers = settings.size("n_layer", 12);
  config.heads = settings.size("n_head", 12);
  config.hidden = settings.size("n_embd", 768);
  config.vocab = settings.size("vocab_size", 50257);
  config.max_seq_len = settings.size("n_positions", settings.size("n_ctx", 1024));
  config.tied = settings.flag("tie_word_embeddings", true);
  settings.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  settings.require("layer_norm_epsilon", {1e-5});
  settings.require("n_inner", {4 * config.hidden});
  settings.require("scale_attn_weights", {true});
  settings.require("scale_attn_by_inverse_layer_idx", {false});
  settings.require("add_cross_attention", {false});
  try {
    check(config);
  } catch (const std::invalid_argument& error) {
    settings.refuse(std::string("contradictory sizes: ") + error.what());
  }
  return config;
}

void write_json(const std::string& path, const Json& json) {
  const std::string text = json.dump(2) + "\n";
  create_range_file(temporary_name(path), static_cast<std::int64_t>(text.size()));
  RangeFile file(temporary_name(path));
  file.write(0, text.data(), static_cast<std::int64_t>(text.size()));
  file.sync();
  publish(path);
}

Json config_json(const ModelConfig& config, const HuggingFaceSettings& settings) {
  Json json = {{"architectures", {"GPT2LMHeadModel"}},
               {"model_type", "gpt2"},
               {"n_layer", config.layers},
               {"n_head", config.heads},
               {"n_embd", config.hidden},
               {"n_positions", config.max_seq_len},
               {"n_ctx", config.max_seq_len},
               {"vocab_size", config.vocab},
               {"tie_word_embeddings", config.tied},
               {"activation_function", "gelu_new"},
               {"layer_norm_epsilon", 1e-5},
               {"initializer_range", 0.02},
               {"attn_pdrop", 0.0},
               {"embd_pdrop", 0.0},
               {"resid_pdrop", 0.0},
               {"torch_dtype", settings.as_bf16 ? "bfloat16" : "float32"}};
  json["bos_token_id"] = json["eos_token_id"] = settings.end_of_text ? Json(*settings.end_of_text) : Json(nullptr);
  return json;
}

}  // namespace

HuggingFaceModel::HuggingFaceModel(const std::string& folder)
    : folder_(folder), config_(read_config(fs::path(folder) / "config.json")), tensors_(folder) {
  prefix_ = tensors_.find("wte.weight") != nullptr ? "" : "transformer.";
  // The sizes may be absurd, so only tensors that the file has are read.
  const StoredTensor* last = tensors_.find(name_of(TensorKind::fcprojb, config_.layers - 1, prefix_));
  if (last == nullptr) {
    throw std::invalid_argument(folder + ": has no tensor '" +
                                name_of(TensorKind::fcprojb, config_.layers - 1, prefix_) +
                                "', but its config.json says " + std::to_string(config_.layers) + " layers");
  }
  for (const TensorInfo& tensor : model_tensors(config_)) check_tensor(tensor);
}

void HuggingFaceModel::check_tensor(const TensorInfo& tensor) const {
  const StoredTensor& stored = find(tensor.kind, layer_of(tensor));
  const std::string where = stored.file->path() + ": tensor '" + name_of(tensor.kind, layer_of(tensor), prefix_) + "' ";
  if (stored.dtype == TensorDtype::other)
    throw std::invalid_argument(where + "has a dtype that is not F32, F16 or BF16");
  if (stored.shape == kept_shape(tensor.kind, config_)) return;
  const auto shown = [](const std::vector<std::int64_t>& shape) {
    std::string text;
    for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
    return "(" + text + ")";
  };
  throw std::invalid_argument(where + "has the shape " + shown(stored.shape) + "; for the sizes in config.json it is " +
                              shown(kept_shape(tensor.kind, config_)));
}

const StoredTensor& HuggingFaceModel::find(TensorKind kind, std::int64_t layer) const {
  const std::string name = name_of(kind, layer, prefix_);
  const StoredTensor* found = tensors_.find(name);
  if (found == nullptr) throw std::invalid_argument(folder_ + ": has no tensor '" + name + "'");
  return *found;
}

void HuggingFaceModel::read(float* out, const TensorInfo& tensor, std::int64_t begin, std::int64_t count) const {
  const StoredTensor& stored = find(tensor.kind, layer_of(tensor));
  if (!keeping(tensor.kind).transposed) return stored.read(out, first_element(config_, tensor) + begin, count);
  // A row of ours is a column of theirs.
  const auto [rows, columns] = sizes(tensor.kind, config_);
  while (count > 0) {
    const std::int64_t row = begin / columns;
    const std::int64_t column = begin % columns;
    const std::int64_t part = std::min(count, columns - column);
    stored.read(out, column * rows + row, part, rows);
    out += part;
    begin += part;
    count -= part;
  }
}

void write_huggingface(const std::string& folder, const ModelConfig& config, const HuggingFaceSettings& settings,
                       const std::function<void(float*, const TensorInfo&, std::int64_t, std::int64_t)>& read) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error(folder + ": the folder cannot be made: " + error.message());
  const std::vector<TensorInfo> ours = model_tensors(config);
  std::vector<TensorToWrite> theirs;
  std::vector<std::size_t> first;  // of our shards in their tensor; the others follow
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].shard > 0) continue;
    theirs.push_back({name_of(ours[i].kind, layer_of(ours[i]), "transformer."), kept_shape(ours[i].kind, config)});
    first.push_back(i);
  }
  write_safetensors(folder, theirs, settings.as_bf16, settings.shard_bytes, [&](std::size_t i) {
    const TensorInfo& tensor = ours[first[i]];
    const auto [rows, columns] = sizes(tensor.kind, config);
    std::vector<float> values(static_cast<std::size_t>(std::max<std::int64_t>(1, rows) * columns));
    for (std::size_t k = first[i]; k == first[i] || (k < ours.size() && ours[k].shard > 0); ++k) {
      read(values.data() + first_element(config, ours[k]), ours[k], 0, elements_before_padding(config, ours[k]));
    }
    if (!keeping(tensor.kind).transposed) return values;
    std::vector<float> transposed(values.size());
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        transposed[static_cast<std::size_t>(column * rows + row)] =
            values[static_cast<std::size_t>(row * columns + column)];
      }
    }
    return transposed;
  });
  write_json(fs::path(folder) / "config.json", config_json(config, settings));
  Json generation = {{"_from_model_config", true}};
  if (settings.end_of_text) {
    generation["bos_token_id"] = generation["eos_token_id"] = *settings.end_of_text;
  }
  write_json(fs::path(folder) / "generation_config.json", generation);
}

}  // namespace train_gpt

// GPT-2 as Hugging Face's `transformers` keeps it: a folder with model.safetensors and config.json. There tensors have
// other names, the matrices of linear layers are (inputs, outputs), and the vocabulary is not padded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/config.h"
#include "model/parameters.h"
#include "model/safetensors.h"

namespace train_gpt {

class HuggingFaceModel {
 public:
  // Reads config.json and checks that every tensor is there with its shape. Throws std::invalid_argument naming the
  // file, the setting or tensor, and what would be right.
  explicit HuggingFaceModel(const std::string& folder);

  const ModelConfig& config() const { return config_; }
  // True if the token embedding is bf16; any finer precision is read as fp32.
  bool is_bf16() const { return find(TensorKind::wte, 0).dtype == TensorDtype::bf16; }

  // Elements [begin, begin + count) of a tensor of config(), none of them padding.
  void read(float* out, const TensorInfo& tensor, std::int64_t begin, std::int64_t count) const;

 private:
  const StoredTensor& find(TensorKind kind, std::int64_t layer) const;
  void check_tensor(const TensorInfo& tensor) const;

  std::string folder_;
  ModelConfig config_;
  SafetensorsFolder tensors_;
  std::string prefix_;  // "transformer."; empty if the model was saved without its head
};

struct HuggingFaceSettings {
  bool as_bf16 = false;
  std::int64_t shard_bytes = 0;             // 0: one file
  std::optional<std::int32_t> end_of_text;  // for generation_config.json
};

// Writes model.safetensors, config.json and generation_config.json of the model that `read` gives, as ModelFile::read
// does. Throws std::runtime_error naming the file.
void write_huggingface(const std::string& folder, const ModelConfig& config, const HuggingFaceSettings& settings,
                       const std::function<void(float*, const TensorInfo&, std::int64_t, std::int64_t)>& read);

}  // namespace train_gpt

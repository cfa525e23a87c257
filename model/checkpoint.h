// Model files in llm.c's layout: 256 little-endian int32 of header, then every tensor in canonical order.
//
//   [0] 20240326   [1] version: 3 fp32, 5 bf16   [2] longest sequence   [3] V   [4] layers   [5] heads   [6] hidden
//   [7] Vp, V rounded up to a multiple of 128    [8] 1: untied, with headw (Vp,C) after all others; 0: tied, as llm.c
//
// Optimizer files have the same shape: the number 20261129, version 1, the same sizes, and as body the first moments of
// all tensors, then the second moments, in fp32. [9] is 0 for AdamW, 1 for Muon, whose matrices have an average in
// place of the first moment and zeros (no bytes on the disk) in place of the second.
//
// Files are independent of ranks: any rank reads the tensors that it holds and writes the tensors that it owns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "model/config.h"
#include "model/huggingface.h"
#include "model/parameters.h"
#include "model/range_file.h"

namespace train_gpt {

// A model opened for reading: a file, a folder with model.bin in it, or one with Hugging Face's model.safetensors and
// config.json (model/huggingface.h). Errors: std::invalid_argument naming the file, the value found and what is right.
class ModelFile {
 public:
  explicit ModelFile(const std::string& path);  // checks headers and exact sizes

  const ModelConfig& config() const { return config_; }
  Precision precision() const { return precision_; }

  // Elements [begin, begin + count) of a tensor of config(), as fp32. Padding rows read as 0, whatever the file holds.
  void read(float* out, const TensorInfo& tensor, std::int64_t begin, std::int64_t count) const;
  // Reads all tensors of a rank into its arena on the device.
  void read_arena(Device& device, float* values, const ArenaLayout& layout) const;

 private:
  void open_file(const std::string& path);

  std::optional<MappedFile> file_;               // one of these two is set
  std::optional<HuggingFaceModel> huggingface_;  //
  ModelConfig config_;
  Precision precision_ = Precision::fp32;
};

// The files that ModelFile(path) reads; `path` itself if it is not a folder.
std::vector<std::string> model_files(const std::string& path);

// The sizes of whole files.
std::int64_t model_file_bytes(const ModelConfig& config, Precision precision);
std::int64_t optimizer_file_bytes(const ModelConfig& config);

// Writing, by any number of ranks (see range_file.h). Errors: std::runtime_error.
//
//   one rank:   create_model_file(path, config, precision);          then a barrier
//   each rank:  write_model_tensors(device, path, .., values);       then a barrier
//   one rank:   publish(path);
void create_model_file(const std::string& path, const ModelConfig& config, Precision precision);
void write_model_tensors(Device& device, const std::string& path, const ModelConfig& config, Precision precision,
                         const ArenaLayout& layout, const float* values);

// Writes the whole file of a model that `model` reads; on one rank.
void write_model_file(const std::string& path, const ModelFile& model, Precision precision);

// An optimizer file opened for reading. Errors as for ModelFile.
class OptimizerFile {
 public:
  explicit OptimizerFile(const std::string& path);

  const ModelConfig& config() const { return config_; }

  // Reads the moments of all tensors of a rank, as far as the layout's optimizer has them, into its arenas on the
  // device. Throws std::invalid_argument if the file is another optimizer's.
  void read_arenas(Device& device, float* first, float* second, const ArenaLayout& layout) const;

 private:
  MappedFile file_;
  ModelConfig config_;
  OptimizerKind optimizer_ = OptimizerKind::adamw;
};

// As for model files, with publish() at the end.
void create_optimizer_file(const std::string& path, const ModelConfig& config, OptimizerKind optimizer);
void write_moments(Device& device, const std::string& path, const ModelConfig& config, const ArenaLayout& layout,
                   const float* first, const float* second);

// Writes the owned tensors of an arena into a file whose body of element_count(config) elements of this precision
// begins at byte `body`; for parameters and moments.
void write_tensors(Device& device, RangeFile& file, std::int64_t body, const ModelConfig& config, Precision precision,
                   const ArenaLayout& layout, const float* arena);

// Nearest bf16, ties to even; NaN stays NaN.
std::uint16_t to_bf16(float value);
float from_bf16(std::uint16_t bits);

}  // namespace train_gpt

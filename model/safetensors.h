// Files of tensors in the safetensors format: 8 bytes with the size of a JSON header, the header, then the tensors'
// elements, one tensor after the other without gaps.
//
//   {"wte.weight": {"dtype": "F32", "shape": [50257, 768], "data_offsets": [0, 154389504]}, .., "__metadata__": {..}}
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/range_file.h"

namespace train_gpt {

enum class TensorDtype : std::uint8_t { f32, bf16, f16, other };

struct StoredTensor {
  TensorDtype dtype = TensorDtype::other;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  const MappedFile* file = nullptr;

  std::int64_t elements() const;
  // out(count): elements first, first + stride, .. as fp32. Not for `other`. Throws std::runtime_error if the file was
  // cut off since it was opened.
  void read(float* out, std::int64_t first, std::int64_t count, std::int64_t stride = 1) const;
};

// The tensors of FOLDER/model.safetensors, or of the shards that FOLDER/model.safetensors.index.json names, mapped.
class SafetensorsFolder {
 public:
  // Checks every header as a whole before it trusts any tensor: sizes, element types, overlaps, gaps. Throws
  // std::invalid_argument naming file, tensor and what is wrong.
  explicit SafetensorsFolder(const std::string& folder);

  // nullptr if there is none.
  const StoredTensor* find(const std::string& name) const;
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

 private:
  void add_file(const std::string& path);

  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, StoredTensor> tensors_;
};

bool has_safetensors(const std::string& folder);

// A tensor to be written; its elements are requested when its turn comes.
struct TensorToWrite {
  std::string name;
  std::vector<std::int64_t> shape;
};

// Writes FOLDER/model.safetensors, or shards of at most `shard_bytes` and their index if one does not hold everything
// (0: no limit). values(i) gives the elements of tensors[i], which become bf16 or stay fp32. Files appear when
// complete. Throws std::runtime_error.
void write_safetensors(const std::string& folder, const std::vector<TensorToWrite>& tensors, bool as_bf16,
                       std::int64_t shard_bytes, const std::function<std::vector<float>(std::size_t)>& values);

}  // namespace train_gpt

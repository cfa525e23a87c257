#include "model/checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <vector>

namespace train_gpt {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are little-endian and mapped as they are");

constexpr std::int32_t kModelMagic = 20240326;
constexpr std::int32_t kTokenMagic = 20240520;
constexpr std::int32_t kOptimizerMagic = 20261129;
constexpr std::int32_t kOptimizerVersion = 1;
constexpr std::size_t kHeaderInts = 256;
constexpr std::int64_t kHeaderBytes = 4 * std::int64_t{kHeaderInts};
constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements in host memory at a time

using Header = std::array<std::int32_t, kHeaderInts>;

std::int64_t moment_bytes(const ModelConfig& config) { return element_count(config) * std::int64_t{sizeof(float)}; }

Header header_of(const ModelConfig& config, std::int32_t magic, std::int32_t version) {
  Header header = {};
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(config.max_seq_len);
  header[3] = static_cast<std::int32_t>(config.vocab);
  header[4] = static_cast<std::int32_t>(config.layers);
  header[5] = static_cast<std::int32_t>(config.heads);
  header[6] = static_cast<std::int32_t>(config.hidden);
  header[7] = static_cast<std::int32_t>(config.padded_vocab());
  header[8] = config.tied ? 0 : 1;
  return header;
}

// Describes what is wrong with the first two numbers of a header; empty if nothing is.
std::string wrong_kind(const Header& header) {
  const auto magic = static_cast<std::uint32_t>(header[0]);
  if (header[0] == kTokenMagic) return "is a token file; a model file begins with the number 20240326";
  if (header[0] == kOptimizerMagic) return "is an optimizer file; a model file begins with the number 20240326";
  if (__builtin_bswap32(magic) == static_cast<std::uint32_t>(kModelMagic))
    return "is big-endian; model files are little-endian";
  if (header[0] != kModelMagic)
    return "begins with the number " + std::to_string(header[0]) + "; a model file begins with 20240326";
  if (header[1] == 1 || header[1] == 2)
    return "has version " + std::to_string(header[1]) +
           ", without padding of the vocabulary; export the model again as version 3 (fp32) or 5 (bf16)";
  if (header[1] != 3 && header[1] != 5)
    return "has version " + std::to_string(header[1]) + "; known are 3 (fp32) and 5 (bf16)";
  return "";
}

ModelConfig config_of(const Header& header) {
  ModelConfig config;
  config.max_seq_len = header[2];
  config.vocab = header[3];
  config.layers = header[4];
  config.heads = header[5];
  config.hidden = header[6];
  config.tied = header[8] == 0;
  return config;
}

// `right_bytes` of the sizes in the header
void check_sizes(const std::string& path, const Header& header, std::int64_t bytes,
                 const std::function<std::int64_t(const ModelConfig&)>& right_bytes) {
  const ModelConfig config = config_of(header);
  const auto refuse = [&](const std::string& why) { throw std::invalid_argument(path + ": " + why); };
  try {
    check(config);
  } catch (const std::invalid_argument& error) {
    refuse(std::string("contradictory sizes in the header: ") + error.what());
  }
  if (header[7] != config.padded_vocab())
    refuse("header says a padded vocabulary of " + std::to_string(header[7]) + "; for a vocabulary of " +
           std::to_string(config.vocab) + " it must be " + std::to_string(config.padded_vocab()));
  if (header[8] != 0 && header[8] != 1)
    refuse("header number 8 is " + std::to_string(header[8]) + "; it must be 0 (tied) or 1 (untied)");
  const std::int64_t right = right_bytes(config);
  if (bytes != right)
    refuse("has " + std::to_string(bytes) + " bytes; for the sizes in its header it must have " +
           std::to_string(right) +
           (bytes < right ? ". The file is cut off: copy it again" : ". Something was appended: copy it again"));
}

// Throws if the file is shorter than a header.
Header header_in(const MappedFile& file, const std::string& kind) {
  const auto bytes = static_cast<std::int64_t>(file.bytes().size());
  if (bytes < kHeaderBytes)
    throw std::invalid_argument(file.path() + ": has " + std::to_string(bytes) + " bytes; " + kind +
                                " file's header alone has " + std::to_string(kHeaderBytes));
  Header header = {};
  std::memcpy(header.data(), file.bytes().data(), static_cast<std::size_t>(kHeaderBytes));
  return header;
}

void create_file(const std::string& path, const Header& header, std::int64_t bytes) {
  const std::string temporary = temporary_name(path);
  create_range_file(temporary, bytes);
  RangeFile file(temporary);
  file.write(0, header.data(), kHeaderBytes);
  file.sync();
}

bool is_held(const ArenaLayout::Entry& /*entry*/) { return true; }
bool is_owned(const ArenaLayout::Entry& entry) { return entry.owned; }
bool has_second_moment(const ArenaLayout::Entry& entry) { return entry.matrices.count == 0; }
bool is_owned_with_second_moment(const ArenaLayout::Entry& entry) {
  return is_owned(entry) && has_second_moment(entry);
}

// Calls visit(tensor, offset in the arena, first element, elements) for pieces of an arena's tensors that `takes`
// accepts.
template <class Takes, class Visit>
void for_each_piece(const ModelConfig& /*config*/, const ArenaLayout& layout, const Takes& takes, const Visit& visit) {
  for (const ArenaLayout::Entry& entry : layout.entries) {
    if (!takes(entry)) continue;
    const TensorInfo& tensor = entry.info;  // or a part of one
    for (std::int64_t begin = 0; begin < tensor.elements; begin += kPiece)
      visit(tensor, entry.offset + begin, begin, std::min(kPiece, tensor.elements - begin));
  }
}

// write_tensors for the entries that `takes` accepts.
template <class Takes>
void write_pieces(Device& device, RangeFile& file, std::int64_t body, const ModelConfig& config, Precision precision,
                  const ArenaLayout& layout, const float* arena, const Takes& takes) {
  std::vector<float> host(static_cast<std::size_t>(kPiece));
  std::vector<std::uint16_t> rounded(static_cast<std::size_t>(precision == Precision::bf16 ? kPiece : 0));
  const std::int64_t element = element_size(precision);
  for_each_piece(config, layout, takes,
                 [&](const TensorInfo& tensor, std::int64_t place, std::int64_t begin, std::int64_t count) {
                   device.to_host(host.data(), arena + place, count * std::int64_t{sizeof(float)});
                   const void* data = host.data();
                   if (precision == Precision::bf16) {
                     std::transform(host.begin(), host.begin() + count, rounded.begin(), to_bf16);
                     data = rounded.data();
                   }
                   file.write(body + (tensor.offset + begin) * element, data, count * element);
                 });
}

}  // namespace

ModelFile::ModelFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    open_file(path);
  } else if (fs::exists(fs::path(path) / "model.bin")) {
    open_file(fs::path(path) / "model.bin");
  } else if (has_safetensors(path)) {
    huggingface_.emplace(path);
    config_ = huggingface_->config();
    precision_ = huggingface_->is_bf16() ? Precision::bf16 : Precision::fp32;
  } else {
    throw std::invalid_argument(path + ": is a folder with neither model.bin nor model.safetensors in it");
  }
}

std::int64_t model_file_bytes(const ModelConfig& config, Precision precision) {
  return kHeaderBytes + element_count(config) * element_size(precision);
}

std::int64_t optimizer_file_bytes(const ModelConfig& config) { return kHeaderBytes + 2 * moment_bytes(config); }

std::vector<std::string> model_files(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  if (fs::exists(fs::path(path) / "model.bin")) return {fs::path(path) / "model.bin"};
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename();
    const bool read =
        name == "config.json" || name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
    if (read) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void ModelFile::open_file(const std::string& path) {
  file_.emplace(path);
  const Header header = header_in(*file_, "a model");
  const std::string wrong = wrong_kind(header);
  if (!wrong.empty()) throw std::invalid_argument(path + ": " + wrong);
  precision_ = header[1] == 3 ? Precision::fp32 : Precision::bf16;
  check_sizes(path, header, static_cast<std::int64_t>(file_->bytes().size()),
              [&](const ModelConfig& config) { return model_file_bytes(config, precision_); });
  config_ = config_of(header);
}

void ModelFile::read(float* out, const TensorInfo& tensor, std::int64_t begin, std::int64_t count) const {
  const std::int64_t stored = std::clamp<std::int64_t>(elements_before_padding(config_, tensor) - begin, 0, count);
  std::fill(out + stored, out + count, 0.0F);
  if (huggingface_) return huggingface_->read(out, tensor, begin, stored);
  const std::byte* in = file_->bytes().data() + kHeaderBytes + (tensor.offset + begin) * element_size(precision_);
  if (precision_ == Precision::fp32) {
    std::memcpy(out, in, static_cast<std::size_t>(stored) * sizeof(float));
  } else {
    for (std::int64_t i = 0; i < stored; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, in + 2 * i, sizeof bits);
      out[i] = from_bf16(bits);
    }
  }
  file_->require_whole();
}

void ModelFile::read_arena(Device& device, float* values, const ArenaLayout& layout) const {
  std::vector<float> host(static_cast<std::size_t>(kPiece));
  const std::vector<TensorInfo> tensors = model_tensors(config_);
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const TensorInfo& tensor = tensors[static_cast<std::size_t>(entry.tensor)];
    const std::int64_t skipped = entry.info.offset - tensor.offset;  // if the entry is a part of it
    for (std::int64_t begin = 0; begin < entry.info.elements; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, entry.info.elements - begin);
      read(host.data(), tensor, skipped + begin, count);
      device.to_device(values + entry.offset + begin, host.data(), count * std::int64_t{sizeof(float)});
    }
  }
}

void create_model_file(const std::string& path, const ModelConfig& config, Precision precision) {
  create_file(path, header_of(config, kModelMagic, precision == Precision::fp32 ? 3 : 5),
              model_file_bytes(config, precision));
}

void write_model_file(const std::string& path, const ModelFile& model, Precision precision) {
  create_model_file(path, model.config(), precision);
  {
    RangeFile file(temporary_name(path));
    std::vector<float> values(static_cast<std::size_t>(kPiece));
    std::vector<std::uint16_t> rounded(values.size());
    for (const TensorInfo& tensor : model_tensors(model.config())) {
      for (std::int64_t begin = 0; begin < tensor.elements; begin += kPiece) {
        const std::int64_t count = std::min(kPiece, tensor.elements - begin);
        model.read(values.data(), tensor, begin, count);
        std::transform(values.begin(), values.begin() + count, rounded.begin(), to_bf16);
        const bool fp32 = precision == Precision::fp32;
        file.write(kHeaderBytes + (tensor.offset + begin) * element_size(precision),
                   fp32 ? static_cast<const void*>(values.data()) : rounded.data(), count * element_size(precision));
      }
    }
    file.sync();
  }
  publish(path);
}

void write_model_tensors(Device& device, const std::string& path, const ModelConfig& config, Precision precision,
                         const ArenaLayout& layout, const float* values) {
  RangeFile file(temporary_name(path));
  write_tensors(device, file, kHeaderBytes, config, precision, layout, values);
  file.sync();
}

OptimizerFile::OptimizerFile(const std::string& path) : file_(path) {
  const Header header = header_in(file_, "an optimizer");
  if (header[0] != kOptimizerMagic || header[1] != kOptimizerVersion)
    throw std::invalid_argument(path + ": begins with the numbers " + std::to_string(header[0]) + " " +
                                std::to_string(header[1]) + "; an optimizer file begins with " +
                                std::to_string(kOptimizerMagic) + " " + std::to_string(kOptimizerVersion));
  check_sizes(path, header, static_cast<std::int64_t>(file_.bytes().size()),
              [](const ModelConfig& config) { return optimizer_file_bytes(config); });
  config_ = config_of(header);
  optimizer_ = header[9] == 0 ? OptimizerKind::adamw : OptimizerKind::muon;
}

void OptimizerFile::read_arenas(Device& device, float* first, float* second, const ArenaLayout& layout) const {
  if (layout.optimizer != optimizer_) {
    const auto name = [](OptimizerKind kind) { return kind == OptimizerKind::muon ? "Muon" : "AdamW"; };
    throw std::invalid_argument(file_.path() + ": holds the state of " + name(optimizer_) + ", not of " +
                                name(layout.optimizer));
  }
  const auto read_into = [&](float* arena, std::int64_t body) {
    return [&device, arena, in = file_.bytes().data() + body](const TensorInfo& tensor, std::int64_t place,
                                                              std::int64_t begin, std::int64_t count) {
      constexpr std::int64_t kFloat = sizeof(float);
      device.to_device(arena + place, in + (tensor.offset + begin) * kFloat, count * kFloat);
    };
  };
  for_each_piece(config_, layout, is_held, read_into(first, kHeaderBytes));
  for_each_piece(config_, layout, has_second_moment, read_into(second, kHeaderBytes + moment_bytes(config_)));
  file_.require_whole();
}

void create_optimizer_file(const std::string& path, const ModelConfig& config, OptimizerKind optimizer) {
  Header header = header_of(config, kOptimizerMagic, kOptimizerVersion);
  header[9] = optimizer == OptimizerKind::muon ? 1 : 0;
  create_file(path, header, optimizer_file_bytes(config));
}

void write_moments(Device& device, const std::string& path, const ModelConfig& config, const ArenaLayout& layout,
                   const float* first, const float* second) {
  RangeFile file(temporary_name(path));
  write_pieces(device, file, kHeaderBytes, config, Precision::fp32, layout, first, is_owned);
  write_pieces(device, file, kHeaderBytes + moment_bytes(config), config, Precision::fp32, layout, second,
               is_owned_with_second_moment);
  file.sync();
}

void write_tensors(Device& device, RangeFile& file, std::int64_t body, const ModelConfig& config, Precision precision,
                   const ArenaLayout& layout, const float* arena) {
  write_pieces(device, file, body, config, precision, layout, arena, is_owned);
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // a quiet NaN, whatever is cut off
  const std::uint32_t nearest_even = 0x7FFFU + ((bits >> 16) & 1U);
  return static_cast<std::uint16_t>((bits + nearest_even) >> 16);
}

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

}  // namespace train_gpt

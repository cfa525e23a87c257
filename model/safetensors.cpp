#include "model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "model/checkpoint.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100000000;  // the format's own limit

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw std::invalid_argument(path + ": " + reason);
}

Json parse(const std::string& path, std::string_view text, const std::string& what) {
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) refuse(path, what + " is no JSON object");
    return json;
  } catch (const Json::exception& error) {
    refuse(path, what + " is no JSON: " + std::string(error.what()).substr(0, 300));  // it may quote a whole text
  }
}

// Bytes of an element; 0: not a type of the format.
std::int64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::int64_t> sizes = {
      {"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4}, {"I32", 4},     {"U32", 4},     {"F16", 2}, {"BF16", 2},
      {"I16", 2}, {"U16", 2}, {"BOOL", 1}, {"U8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

TensorDtype dtype_of(const std::string& name) {
  if (name == "F32") return TensorDtype::f32;
  if (name == "BF16") return TensorDtype::bf16;
  return name == "F16" ? TensorDtype::f16 : TensorDtype::other;
}

// Reads a whole number of a list in a header.
std::int64_t number_in(const Json& list, std::size_t i, const std::string& path, const std::string& where) {
  const Json& number = list[i];
  if (!number.is_number_unsigned() || number.get<std::uint64_t>() > INT64_MAX) {
    // For a list the message names the type alone: writing it out takes stack in proportion to its depth.
    const std::string shown = number.is_structured() ? number.type_name() : number.dump().substr(0, 40);
    refuse(path, where + " has " + shown + " where a number of elements or bytes should be");
  }
  return number.get<std::int64_t>();
}

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // bytes after the header
  std::int64_t end = 0;
};

Entry entry_of(const std::string& name, const Json& json, const std::string& path) {
  const std::string where = "tensor '" + name.substr(0, 100) + "'";
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() || !json.contains("shape") ||
      !json["shape"].is_array() || !json.contains("data_offsets") || !json["data_offsets"].is_array() ||
      json["data_offsets"].size() != 2) {
    refuse(path, where + " lacks dtype, shape or two data_offsets");
  }
  Entry entry{name, json["dtype"], {}, 0, 0};
  std::int64_t bytes = element_bytes(entry.dtype);
  if (bytes == 0) refuse(path, where + " has the unknown dtype '" + entry.dtype.substr(0, 20) + "'");
  for (std::size_t i = 0; i < json["shape"].size(); ++i) {
    entry.shape.push_back(number_in(json["shape"], i, path, where));
    if (__builtin_mul_overflow(bytes, entry.shape.back(), &bytes)) refuse(path, where + " has an impossible shape");
  }
  entry.begin = number_in(json["data_offsets"], 0, path, where);
  entry.end = number_in(json["data_offsets"], 1, path, where);
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    refuse(path, where + " has the offsets " + std::to_string(entry.begin) + " to " + std::to_string(entry.end) +
                     ", but its shape takes " + std::to_string(bytes) + " bytes");
  }
  return entry;
}

// All tensors of a header, in the order of their bytes, which they cover exactly.
std::vector<Entry> entries_of(const Json& header, const std::string& path, std::int64_t body_bytes) {
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name != "__metadata__") entries.push_back(entry_of(name, json, path));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::int64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered) {
      refuse(path, "tensor '" + entry.name.substr(0, 100) + "' begins at byte " + std::to_string(entry.begin) + ", " +
                       (entry.begin < covered ? "within the tensor before it" : "after a hole") + "; it should be at " +
                       std::to_string(covered));
    }
    covered = entry.end;
  }
  if (covered != body_bytes) {
    refuse(path, "has " + std::to_string(body_bytes) + " bytes of tensors, but its header describes " +
                     std::to_string(covered) + (covered > body_bytes ? ": the file is cut off" : ""));
  }
  return entries;
}

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // zero, or below the smallest normal number: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 0x1FU ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23U) | (fraction << 13U));
}

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

std::int64_t StoredTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

void StoredTensor::read(float* out, std::int64_t first, std::int64_t count, std::int64_t stride) const {
  const auto copy = [&]<typename Bits>(Bits, auto convert) {
    const std::byte* in = bytes.data() + first * std::int64_t{sizeof(Bits)};
    for (std::int64_t i = 0; i < count; ++i, in += stride * std::int64_t{sizeof(Bits)}) {
      Bits bits;
      std::memcpy(&bits, in, sizeof bits);
      out[i] = convert(bits);
    }
  };
  if (dtype == TensorDtype::f32) {
    copy(float{}, [](float value) { return value; });
  } else if (dtype == TensorDtype::bf16) {
    copy(std::uint16_t{}, from_bf16);
  } else {
    copy(std::uint16_t{}, from_f16);
  }
  file->require_whole();
}

bool has_safetensors(const std::string& folder) {
  const std::filesystem::path path = folder;
  return std::filesystem::exists(path / kOneFile) || std::filesystem::exists(path / kIndex);
}

SafetensorsFolder::SafetensorsFolder(const std::string& folder) {
  const std::filesystem::path path = folder;
  if (std::filesystem::exists(path / kOneFile)) {
    add_file(path / kOneFile);
    return;
  }
  const std::string index = path / kIndex;
  const Json json = parse(index, read_text(index), "the index");
  if (!json.contains("weight_map") || !json["weight_map"].is_object()) refuse(index, "has no \"weight_map\"");
  std::map<std::string, std::vector<std::string>> names_by_file;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
      refuse(index, "gives tensor '" + name.substr(0, 100) + "' no file of this folder");
    }
    names_by_file[file].push_back(name);
  }
  for (const auto& [file, names] : names_by_file) {
    add_file(path / file);
    for (const std::string& name : names) {
      if (find(name) == nullptr)
        refuse(index, "says that '" + name.substr(0, 100) + "' is in " + file + ", where it is not");
    }
  }
}

void SafetensorsFolder::add_file(const std::string& path) {
  files_.push_back(std::make_unique<MappedFile>(path));
  const std::span<const std::byte> bytes = files_.back()->bytes();
  std::uint64_t length = 0;
  if (bytes.size() < kLengthBytes) refuse(path, "has " + std::to_string(bytes.size()) + " bytes, too few for a header");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kLargestHeader || length > bytes.size() - kLengthBytes) {
    refuse(path, "says that its header has " + std::to_string(length) + " bytes, but the file has " +
                     std::to_string(bytes.size()) + ", and a header at most " + std::to_string(kLargestHeader));
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  const Json header = parse(path, {text, length}, "the header");
  const std::span<const std::byte> body = bytes.subspan(kLengthBytes + length);
  for (const Entry& entry : entries_of(header, path, static_cast<std::int64_t>(body.size()))) {
    const auto size = static_cast<std::size_t>(entry.end - entry.begin);
    const StoredTensor tensor{dtype_of(entry.dtype), entry.shape,
                              body.subspan(static_cast<std::size_t>(entry.begin), size), files_.back().get()};
    if (!tensors_.emplace(entry.name, tensor).second) {
      refuse(path, "has tensor '" + entry.name.substr(0, 100) + "', which another file has, too");
    }
  }
}

const StoredTensor* SafetensorsFolder::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

// ---- writing --------------------------------------------------------------------------------------------------------

namespace {

std::int64_t bytes_of(const TensorToWrite& tensor, bool as_bf16) {
  std::int64_t bytes = as_bf16 ? 2 : 4;
  for (const std::int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

// Writes tensors [first, last) as one file.
void write_file(const std::string& path, const std::vector<TensorToWrite>& tensors, std::size_t first, std::size_t last,
                bool as_bf16, const std::function<std::vector<float>(std::size_t)>& values) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::int64_t body = 0;
  for (std::size_t i = first; i < last; ++i) {
    const std::int64_t end = body + bytes_of(tensors[i], as_bf16);
    header[tensors[i].name] = {
        {"dtype", as_bf16 ? "BF16" : "F32"}, {"shape", tensors[i].shape}, {"data_offsets", {body, end}}};
    body = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the elements are aligned
  const std::uint64_t length = text.size();
  create_range_file(temporary_name(path), static_cast<std::int64_t>(kLengthBytes + length) + body);
  RangeFile file(temporary_name(path));
  file.write(0, &length, sizeof length);
  file.write(sizeof length, text.data(), static_cast<std::int64_t>(length));
  std::int64_t at = static_cast<std::int64_t>(kLengthBytes + length);
  for (std::size_t i = first; i < last; ++i) {
    const std::vector<float> elements = values(i);
    std::vector<std::uint16_t> rounded;
    if (as_bf16) {
      rounded.resize(elements.size());
      std::transform(elements.begin(), elements.end(), rounded.begin(), to_bf16);
    }
    const std::int64_t bytes = bytes_of(tensors[i], as_bf16);
    file.write(at, as_bf16 ? static_cast<const void*>(rounded.data()) : elements.data(), bytes);
    at += bytes;
  }
  file.sync();
  publish(path);
}

}  // namespace

void write_safetensors(const std::string& folder, const std::vector<TensorToWrite>& tensors, bool as_bf16,
                       std::int64_t shard_bytes, const std::function<std::vector<float>(std::size_t)>& values) {
  std::vector<std::size_t> ends;  // of shards
  std::int64_t bytes = 0;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t more = bytes_of(tensors[i], as_bf16);
    if (shard_bytes > 0 && bytes > 0 && bytes + more > shard_bytes) {
      ends.push_back(i);
      bytes = 0;
    }
    bytes += more;
    total += more;
  }
  ends.push_back(tensors.size());
  const std::filesystem::path path = folder;
  // Readers prefer the single file if both forms exist.
  if (ends.size() == 1) return write_file(path / kOneFile, tensors, 0, tensors.size(), as_bf16, values);
  std::filesystem::remove(path / kOneFile);
  Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", Json::object()}};
  std::size_t first = 0;
  for (std::size_t shard = 0; shard < ends.size(); ++shard) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard + 1, ends.size());
    write_file(path / name, tensors, first, ends[shard], as_bf16, values);
    for (; first < ends[shard]; ++first) index["weight_map"][tensors[first].name] = name;
  }
  const std::string text = index.dump(2) + "\n";
  create_range_file(temporary_name(path / kIndex), static_cast<std::int64_t>(text.size()));
  RangeFile file(temporary_name(path / kIndex));
  file.write(0, text.data(), static_cast<std::int64_t>(text.size()));
  file.sync();
  publish(path / kIndex);
}

}  // namespace train_gpt

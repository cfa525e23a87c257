#include "data/byte_tokenizer.h"

#include <stdexcept>

namespace train_gpt {
namespace {

// Bytes of the UTF-8 character that starts with `first`; 1 for bytes that start none.
std::size_t character_length(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 1;
}

bool continues_character(unsigned char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string ByteDecoder::push(std::int32_t id) {
  if (id == kByteEndOfText) return finish() + end_of_text_;
  if (id < 0 || id > kByteEndOfText) {
    throw std::invalid_argument("id " + std::to_string(id) + " is no byte: byte-level ids are 0 to 256");
  }
  const auto byte = static_cast<unsigned char>(id);
  std::string text;
  if (pending_.empty() || !continues_character(byte)) text = finish();
  pending_.push_back(static_cast<char>(byte));
  if (pending_.size() == character_length(static_cast<unsigned char>(pending_.front()))) text += finish();
  return text;
}

std::string ByteDecoder::finish() { return std::exchange(pending_, {}); }

}  // namespace train_gpt

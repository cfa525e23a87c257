// The byte-level tokenizer: ids 0..255 are bytes, id 256 is the end of text. It needs no vocabulary files, takes any
// input and gives back exactly the same bytes. "<|endoftext|>" within a text is 13 ordinary bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace train_gpt {

inline constexpr std::int32_t kByteEndOfText = 256;
inline constexpr std::int64_t kByteVocab = 257;

// A model with this vocabulary reads and writes bytes.
inline bool is_byte_level(std::int64_t vocab) { return vocab == kByteVocab; }

std::vector<std::int32_t> encode_bytes(std::string_view text);

// Turns a stream of ids into text that may be shown piece by piece: the bytes of a character are held back until it is
// complete. Whatever is no UTF-8 passes through unchanged, so that all pieces together are exactly the bytes that came
// in. An end-of-text id appears as `end_of_text`.
class ByteDecoder {
 public:
  explicit ByteDecoder(std::string end_of_text = "") : end_of_text_(std::move(end_of_text)) {}

  // Throws std::invalid_argument if id is not in 0..256.
  std::string push(std::int32_t id);
  // What is still held back; the stream is over.
  std::string finish();

 private:
  std::string end_of_text_;
  std::string pending_;  // an incomplete character
};

}  // namespace train_gpt

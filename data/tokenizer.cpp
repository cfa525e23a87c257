#include "data/tokenizer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "data/splitmix64.h"
#include "data/utf8.h"

namespace train_gpt {

std::size_t Tokenizer::PairHash::operator()(std::uint64_t pair) const {
  pair *= kGoldenRatio;
  return static_cast<std::size_t>(pair ^ (pair >> 32U));
}

Tokenizer::Tokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), byte_ids_(256, -1), added_by_byte_(256) {
  for (const std::string& pattern : vocabulary_.patterns) patterns_.emplace_back(pattern);
  for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
    const std::string& bytes = vocabulary_.tokens[id];
    if (bytes.size() == 1) byte_ids_[static_cast<unsigned char>(bytes[0])] = static_cast<std::int32_t>(id);
    if (vocabulary_.whole_pieces_first && !bytes.empty()) whole_.emplace(bytes, static_cast<std::int32_t>(id));
  }
  ranks_.reserve(vocabulary_.merges.size());
  for (std::size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
    const Vocabulary::Merge& merge = vocabulary_.merges[rank];
    ranks_.emplace(pair_key(merge.left, merge.right), static_cast<std::int32_t>(rank));
  }
  for (const Vocabulary::AddedToken& token : vocabulary_.added) {
    added_by_byte_[static_cast<unsigned char>(token.text[0])].push_back(&token);
  }
  for (auto& list : added_by_byte_) {
    std::sort(list.begin(), list.end(), [](const auto* a, const auto* b) { return a->text.size() > b->text.size(); });
  }
}

const std::string& Tokenizer::bytes_of(std::int32_t id) const {
  if (id < 0 || id >= size() || vocabulary_.tokens[static_cast<std::size_t>(id)].empty()) {
    throw std::invalid_argument("id " + std::to_string(id) + " is no token of '" + vocabulary_.name +
                                "', whose ids are 0 to " + std::to_string(size() - 1));
  }
  return vocabulary_.tokens[static_cast<std::size_t>(id)];
}

std::vector<std::int32_t> Tokenizer::byte_lengths() const {
  std::vector<std::int32_t> lengths;
  for (const std::string& bytes : vocabulary_.tokens) lengths.push_back(static_cast<std::int32_t>(bytes.size()));
  lengths[static_cast<std::size_t>(end_of_text())] = 0;
  return lengths;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  Encoder(*this).encode(text, ids);
  return ids;
}

std::string TextDecoder::push(std::int32_t id) {
  if (id == tokenizer_.end_of_text()) return finish() + end_of_text_;
  const std::string bytes = pending_ + tokenizer_.bytes_of(id);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::string_view rest = std::string_view(bytes).substr(done);
    done += utf8_prefix(rest);
    if (done == bytes.size() || utf8_may_begin(std::string_view(bytes).substr(done))) break;
    ++done;  // not UTF-8: passes through
  }
  pending_ = bytes.substr(done);
  return bytes.substr(0, done);
}

std::string TextDecoder::finish() { return std::exchange(pending_, {}); }

}  // namespace train_gpt

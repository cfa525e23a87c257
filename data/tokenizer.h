// Text to ids and back.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/split_pattern.h"
#include "data/unknown_characters.h"
#include "data/vocabulary.h"

namespace train_gpt {

// A vocabulary prepared for use. Threads share it; each encodes with an Encoder of its own.
class Tokenizer {
 public:
  explicit Tokenizer(Vocabulary vocabulary);
  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::int64_t size() const { return vocabulary_.size(); }
  std::int32_t end_of_text() const { return vocabulary_.end_of_text; }
  // Throws std::invalid_argument if there is no such id.
  const std::string& bytes_of(std::int32_t id) const;
  // How many bytes of text each id stands for; 0 for the end of text.
  std::vector<std::int32_t> byte_lengths() const;

  // Convenience for short texts.
  std::vector<std::int32_t> encode(std::string_view text) const;

 private:
  friend class Encoder;
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const;
  };
  static std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) | static_cast<std::uint32_t>(right);
  }

  Vocabulary vocabulary_;
  std::vector<SplitPattern> patterns_;
  std::vector<std::int32_t> byte_ids_;                                     // [byte]
  std::unordered_map<std::uint64_t, std::int32_t, PairHash> ranks_;        // pair -> place in vocabulary_.merges
  std::unordered_map<std::string_view, std::int32_t> whole_;               // used if whole pieces come first
  std::vector<std::vector<const Vocabulary::AddedToken*>> added_by_byte_;  // [first byte], the longest first
};

// Encodes for one thread. It remembers the ids of pieces that it has seen, since most pieces of a text recur.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);

  // A stretch of text without added tokens and bytes that are not UTF-8, or else one id.
  struct Stretch {
    std::string_view text;
    std::optional<std::int32_t> id;
  };
  // Visits the stretches that make up `text`, in order.
  void for_each_stretch(std::string_view text, const std::function<void(const Stretch&)>& visit);

  // Appends the ids of a text.
  void encode(std::string_view text, std::vector<std::int32_t>& ids);

  // Appends the ends of the cuts that the first pattern makes in a stretch, from byte `from`, where a cut begins, up to
  // the first end at `until` or later. A cut depends on nothing before it; without a pattern all is one cut.
  void cut_ends(std::string_view stretch, std::size_t from, std::size_t until, std::vector<std::size_t>& ends);
  // Appends the ids of one cut.
  void encode_cut(std::string_view cut, std::vector<std::int32_t>& ids);
  // Calls visit(piece) for each piece into which the other patterns split one cut; nothing is merged.
  template <typename Visit>
  void for_each_piece(std::string_view cut, const Visit& visit) {
    split(cut, 1, visit);
  }

  // Of all stretches so far that a pattern has split.
  const UnknownCharacters& unknown() const { return unknown_; }

 private:
  struct Symbol {
    std::int32_t id = 0;  // -1: merged into its left neighbour
    std::int32_t previous = 0;
    std::int32_t next = 0;
  };
  struct Candidate {
    std::int32_t rank = 0;
    std::int32_t position = 0;  // of the left symbol
    std::int32_t left = 0;
    std::int32_t right = 0;
    bool operator<(const Candidate& other) const {  // for a heap whose top has the lowest rank, the leftmost first
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  struct Known {
    std::uint32_t first = 0;  // in known_ids_
    std::uint32_t count = 0;
  };
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  template <typename Visit>
  void split(std::string_view text, std::size_t pattern, const Visit& visit);
  void append_piece(std::string_view piece, std::vector<std::int32_t>& ids);
  void merge_piece(std::string_view piece, std::vector<std::int32_t>& ids);
  void consider(std::int32_t position);

  const Tokenizer& tokenizer_;
  std::vector<SplitMatcher> matchers_;  // one per pattern
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  std::unordered_map<std::string, Known, TextHash, std::equal_to<>> known_;
  std::vector<std::int32_t> known_ids_;
  std::vector<std::size_t> ends_;
  UnknownCharacters unknown_;
};

template <typename Visit>
void Encoder::split(std::string_view text, std::size_t pattern, const Visit& visit) {
  if (text.empty()) return;
  if (pattern >= matchers_.size()) return visit(text);
  for (std::size_t at = 0; at < text.size();) {
    const SplitMatcher::Match match = matchers_[pattern].find(text, at);
    split(text.substr(at, match.begin - at), pattern + 1, visit);
    split(text.substr(match.begin, match.end - match.begin), pattern + 1, visit);
    at = match.end;
  }
}

// Turns a stream of ids into text that may be shown piece by piece: the bytes of a character are held back until it is
// complete. Bytes that are not UTF-8 pass through unchanged, so that all pieces together are exactly the text.
class TextDecoder {
 public:
  // An end-of-text id appears as `end_of_text`.
  explicit TextDecoder(const Tokenizer& tokenizer, std::string end_of_text = "")
      : tokenizer_(tokenizer), end_of_text_(std::move(end_of_text)) {}

  // Throws std::invalid_argument if there is no such id.
  std::string push(std::int32_t id);
  // Ends the stream and returns the text still held back.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string end_of_text_;
  std::string pending_;  // an incomplete character
};

}  // namespace train_gpt

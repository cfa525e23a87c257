// Learning a byte-level byte-pair vocabulary from text (Sennrich et al. 2016): the most frequent pair of neighbouring
// tokens becomes a token, again and again. Among equally frequent pairs the one with the smaller ids wins, so that a
// text always gives the same vocabulary, which is that of Hugging Face's BPE trainer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/vocabulary.h"

namespace train_gpt {

// How often each piece occurs in a text. Its memory grows with the number of different pieces, not with the text.
class PieceCounts {
 public:
  void add(std::string_view piece, std::int64_t times = 1);
  void add(const PieceCounts& other);

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  const std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>& counts() const { return counts_; }

 private:
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> counts_;
};

// Ids 0 to 255 are the bytes in the order of their letters (byte_alphabet.h), then come the merges, and last the end of
// text. `size` ids in all, fewer if the text has no pair left. `pattern` is the one that split the text. `progress` is
// called now and then with the ids so far and `size`. Throws std::invalid_argument if size < 257.
Vocabulary learn_vocabulary(const PieceCounts& pieces, std::int64_t size, const std::string& pattern,
                            const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace train_gpt

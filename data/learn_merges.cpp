#include "data/learn_merges.h"

#include <algorithm>
#include <array>
#include <queue>
#include <stdexcept>
#include <vector>

#include "data/byte_alphabet.h"
#include "data/splitmix64.h"
#include "data/vocabulary_file.h"

namespace train_gpt {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto key = (static_cast<std::uint64_t>(pair.first) << 32U) | static_cast<std::uint32_t>(pair.second);
    return static_cast<std::size_t>((key * kGoldenRatio) >> 20U);
  }
};

// All different pieces, one after the other, as linked symbols.
struct Symbol {
  std::int32_t id = -1;        // -1: merged into the symbol before it
  std::int32_t piece = 0;      // index into the pieces' counts
  std::int64_t previous = -1;  // -1: none, within the piece
  std::int64_t next = -1;
};

struct PairState {
  std::int64_t count = 0;               // in the text
  std::vector<std::int64_t> positions;  // of left symbols; some may have changed since
};

struct Candidate {
  std::int64_t count = 0;  // when it was pushed on the heap
  Pair pair;
  bool operator<(
      const Candidate& other) const {  // for a heap whose top has the highest count, the smallest pair among equals
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Learner {
 public:
  Learner(const PieceCounts& pieces, Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    std::array<std::int32_t, 256> byte_ids{};
    for (std::size_t i = 0; i < 256; ++i) {
      byte_ids[bytes_in_alphabet_order()[i]] = static_cast<std::int32_t>(i);
    }
    ids_ = token_ids(vocabulary);
    for (const auto& [piece, count] : pieces.counts()) add_piece(piece, count, byte_ids);
    for (const auto& [pair, state] : pairs_) heap_.push({state.count, pair});
  }

  // False if no pair is left.
  bool learn_one() {
    while (!heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const std::int64_t count = pairs_.at(best.pair).count;
      if (count < 1) continue;
      if (count < best.count) {  // it has become rarer since: push it back
        heap_.push({count, best.pair});
        continue;
      }
      merge(best.pair);
      return true;
    }
    return false;
  }

 private:
  void add_piece(const std::string& piece, std::int64_t count, const std::array<std::int32_t, 256>& byte_ids) {
    const auto begin = static_cast<std::int64_t>(symbols_.size());
    const auto end = begin + static_cast<std::int64_t>(piece.size());
    const auto index = static_cast<std::int32_t>(counts_.size());
    counts_.push_back(count);
    for (std::int64_t at = begin; at < end; ++at) {
      const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(at - begin)]);
      symbols_.push_back({byte_ids[byte], index, at > begin ? at - 1 : -1, at + 1 < end ? at + 1 : -1});
      if (at > begin) change(at - 1, count);
    }
  }

  Symbol& symbol(std::int64_t at) { return symbols_[static_cast<std::size_t>(at)]; }

  // The pair that begins at `at` occurs `times` times more often, or less if negative.
  void change(std::int64_t at, std::int64_t times) {
    const Pair pair = {symbol(at).id, symbol(symbol(at).next).id};
    PairState& state = pairs_[pair];
    state.count += times;
    if (times > 0) {
      state.positions.push_back(at);
      grown_.push_back(pair);
    }
  }

  void merge(const Pair& pair) {
    const auto token_of = [&](std::int32_t id) { return vocabulary_.tokens[static_cast<std::size_t>(id)]; };
    const std::string token = token_of(pair.first) + token_of(pair.second);
    // Another pair may have made the same token before.
    const auto [place, is_new] = ids_.emplace(token, static_cast<std::int32_t>(vocabulary_.tokens.size()));
    const std::int32_t id = place->second;
    if (is_new) vocabulary_.tokens.push_back(token);
    vocabulary_.merges.push_back({pair.first, pair.second, id});
    grown_.clear();
    std::vector<std::int64_t> positions = std::move(pairs_[pair].positions);
    pairs_[pair] = {};
    std::sort(positions.begin(), positions.end());  // from left to right, as overlapping pairs are merged
    for (const std::int64_t at : positions) merge_at(at, pair, id);
    pairs_[pair].count = 0;
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair& one : grown_) heap_.push({pairs_[one].count, one});
  }

  void merge_at(std::int64_t at, const Pair& pair, std::int32_t id) {
    Symbol& left = symbol(at);
    if (left.id != pair.first || left.next < 0 || symbol(left.next).id != pair.second) return;
    const std::int64_t count = counts_[static_cast<std::size_t>(left.piece)];
    Symbol& right = symbol(left.next);
    if (left.previous >= 0) change(left.previous, -count);
    if (right.next >= 0) change(left.next, -count);
    left.id = id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbol(left.next).previous = at;
    if (left.previous >= 0) change(left.previous, count);
    if (left.next >= 0) change(at, count);
  }

  Vocabulary& vocabulary_;
  TokenIds ids_;
  std::vector<Symbol> symbols_;
  std::vector<std::int64_t> counts_;  // [piece]
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> grown_;  // by the merge under way
};

}  // namespace

void PieceCounts::add(std::string_view piece, std::int64_t times) {
  const auto found = counts_.find(piece);
  if (found != counts_.end()) {
    found->second += times;
  } else {
    counts_.emplace(piece, times);
  }
}

void PieceCounts::add(const PieceCounts& other) {
  for (const auto& [piece, count] : other.counts_) add(piece, count);
}

Vocabulary learn_vocabulary(const PieceCounts& pieces, std::int64_t size, const std::string& pattern,
                            const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (size < kByteVocab) {
    throw std::invalid_argument("--vocab " + std::to_string(size) + ": a byte-level vocabulary has 256 bytes and the " +
                                "end of text; give 257 or more");
  }
  Vocabulary vocabulary;
  vocabulary.name = "learned";
  vocabulary.patterns = {pattern};
  for (const unsigned char byte : bytes_in_alphabet_order()) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  Learner learner(pieces, vocabulary);
  while (vocabulary.size() + 1 < size && learner.learn_one()) {
    if (progress && vocabulary.size() % 256 == 0) progress(vocabulary.size(), size);
  }
  vocabulary.end_of_text = static_cast<std::int32_t>(vocabulary.size());
  vocabulary.tokens.emplace_back(kEndOfText);
  vocabulary.added.push_back({kEndOfText, vocabulary.end_of_text});
  vocabulary.json = tokenizer_json(vocabulary);
  return vocabulary;
}

}  // namespace train_gpt

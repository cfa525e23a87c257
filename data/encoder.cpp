// The encoding half of tokenizer.h: added tokens, pieces, and the merges within a piece.
#include <algorithm>
#include <stdexcept>

#include "data/tokenizer.h"
#include "data/utf8.h"

namespace train_gpt {
namespace {

// Long pieces seldom recur, and memory must have a bound.
constexpr std::size_t kLongestKnown = 64;
constexpr std::size_t kMostKnown = std::size_t{1} << 17;
constexpr std::size_t kLongestPiece = std::size_t{1} << 30;

using AddedByByte = std::vector<std::vector<const Vocabulary::AddedToken*>>;

// The first added token of this kind at or after `from`: the longest of those that begin there.
const Vocabulary::AddedToken* find_added(const AddedByByte& added, bool normalized, std::string_view text,
                                         std::size_t& from) {
  for (; from < text.size(); ++from) {
    for (const Vocabulary::AddedToken* token : added[static_cast<unsigned char>(text[from])]) {
      if (token->normalized == normalized && text.substr(from).starts_with(token->text)) return token;
    }
  }
  return nullptr;
}

}  // namespace

Encoder::Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (const SplitPattern& pattern : tokenizer.patterns_) matchers_.emplace_back(pattern);
}

void Encoder::for_each_stretch(std::string_view text, const std::function<void(const Stretch&)>& visit) {
  const auto add_text = [&](std::string_view rest) {
    while (!rest.empty()) {
      const std::size_t length = utf8_prefix(rest);
      if (length > 0 && !matchers_.empty()) unknown_.look_at(rest.substr(0, length));
      if (length > 0) visit({rest.substr(0, length), std::nullopt});
      rest.remove_prefix(length);
      if (rest.empty()) break;
      visit({rest.substr(0, 1), tokenizer_.byte_ids_[static_cast<unsigned char>(rest[0])]});
      rest.remove_prefix(1);
    }
  };
  // Finds tokens that are not normalized first, then the others in the text between them.
  const auto add_between = [&](std::string_view rest, bool normalized, const auto& add_rest) {
    while (!rest.empty()) {
      std::size_t at = 0;
      const auto* token = find_added(tokenizer_.added_by_byte_, normalized, rest, at);
      add_rest(rest.substr(0, at));
      if (token == nullptr) return;
      visit({rest.substr(at, token->text.size()), token->id});
      rest.remove_prefix(at + token->text.size());
    }
  };
  if (tokenizer_.vocabulary_.added.empty()) {
    add_text(text);
  } else {
    add_between(text, false, [&](std::string_view rest) { add_between(rest, true, add_text); });
  }
}

void Encoder::encode(std::string_view text, std::vector<std::int32_t>& ids) {
  for_each_stretch(text, [&](const Stretch& stretch) {
    if (stretch.id) return ids.push_back(*stretch.id);
    ends_.clear();
    cut_ends(stretch.text, 0, stretch.text.size(), ends_);
    std::size_t at = 0;
    for (const std::size_t end : ends_) {
      encode_cut(stretch.text.substr(at, end - at), ids);
      at = end;
    }
  });
}

void Encoder::cut_ends(std::string_view stretch, std::size_t from, std::size_t until, std::vector<std::size_t>& ends) {
  if (matchers_.empty() && from < until) ends.push_back(until);
  std::size_t at = from;
  while (!matchers_.empty() && at < until) {
    const SplitMatcher::Match match = matchers_.front().find(stretch, at);
    if (match.begin > at) ends.push_back(match.begin);
    if (match.end > match.begin) ends.push_back(match.end);
    at = match.end;
  }
}

void Encoder::encode_cut(std::string_view cut, std::vector<std::int32_t>& ids) {
  for_each_piece(cut, [&](std::string_view piece) { append_piece(piece, ids); });
}

void Encoder::append_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (tokenizer_.ranks_.empty()) {
    for (const char byte : piece) ids.push_back(tokenizer_.byte_ids_[static_cast<unsigned char>(byte)]);
    return;
  }
  if (piece.size() > kLongestKnown) return merge_piece(piece, ids);
  const auto found = known_.find(piece);
  if (found != known_.end()) {
    const auto first = known_ids_.begin() + found->second.first;
    ids.insert(ids.end(), first, first + found->second.count);
    return;
  }
  const std::size_t before = ids.size();
  merge_piece(piece, ids);
  if (known_.size() == kMostKnown) {
    known_.clear();
    known_ids_.clear();
  }
  known_.emplace(piece,
                 Known{static_cast<std::uint32_t>(known_ids_.size()), static_cast<std::uint32_t>(ids.size() - before)});
  known_ids_.insert(known_ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
}

// Puts the pair that begins at a symbol on the heap, if it merges.
void Encoder::consider(std::int32_t position) {
  const Symbol& left = symbols_[static_cast<std::size_t>(position)];
  if (left.next < 0) return;
  const std::int32_t right = symbols_[static_cast<std::size_t>(left.next)].id;
  const auto found = tokenizer_.ranks_.find(Tokenizer::pair_key(left.id, right));
  if (found == tokenizer_.ranks_.end()) return;
  heap_.push_back({found->second, position, left.id, right});
  std::push_heap(heap_.begin(), heap_.end());
}

// Merges the pair of lowest rank, the leftmost among equals, until none is left. Candidates whose symbols have changed
// are recognised at the top of the heap, so that n bytes take O(n log n).
void Encoder::merge_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (tokenizer_.vocabulary_.whole_pieces_first) {
    if (const auto whole = tokenizer_.whole_.find(piece); whole != tokenizer_.whole_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  if (piece.size() > kLongestPiece) {
    throw std::invalid_argument("the text has a piece of " + std::to_string(piece.size()) +
                                " bytes that its pattern does not cut; at most " + std::to_string(kLongestPiece) +
                                " can be merged");
  }
  const auto size = static_cast<std::int32_t>(piece.size());
  symbols_.clear();
  for (std::int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    symbols_.push_back({tokenizer_.byte_ids_[byte], i - 1, i + 1 < size ? i + 1 : -1});
  }
  heap_.clear();
  for (std::int32_t i = 0; i < size; ++i) consider(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<std::size_t>(best.position)];
    if (left.id != best.left || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = tokenizer_.vocabulary_.merges[static_cast<std::size_t>(best.rank)].result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = best.position;
    if (left.previous >= 0) consider(left.previous);
    consider(best.position);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
    ids.push_back(symbols_[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace train_gpt

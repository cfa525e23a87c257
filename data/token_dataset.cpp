#include "data/token_dataset.h"

#include <algorithm>
#include <stdexcept>

#include "data/glob.h"

namespace train_gpt {
namespace {

// Checking this much takes a fraction of a second from memory and about a second from a disk, on every rank.
constexpr std::int64_t kScannedBytes = std::int64_t{1} << 30;

}  // namespace

TokenDataset::TokenDataset(const std::string& pattern, const std::string& option, std::int64_t seq_len,
                           std::int64_t vocab)
    : pattern_(pattern), option_(option), seq_len_(seq_len), vocab_(vocab), first_window_{0} {
  std::int64_t bytes = 0;
  for (const std::string& path : expand_glob(pattern, option)) {
    const TokenFile& shard = shards_.emplace_back(path);
    first_window_.push_back(first_window_.back() + (shard.token_count() - 1) / seq_len);
    bytes += shard.token_count() * shard.bytes_per_token();
  }
  if (window_count() == 0) {
    throw std::invalid_argument(describe() + ", but one window of --seq-len " + std::to_string(seq_len) + " takes " +
                                std::to_string(seq_len + 1) + " in one file; use a smaller --seq-len or more tokens");
  }
  if (bytes > kScannedBytes) return;
  for (const TokenFile& shard : shards_) shard.check_ids(vocab);
}

std::int64_t TokenDataset::token_count() const {
  std::int64_t count = 0;
  for (const TokenFile& shard : shards_) count += shard.token_count();
  return count;
}

void TokenDataset::read_inputs(std::int32_t* out, std::int64_t window) const { read(out, window, 0); }

void TokenDataset::read_targets(std::int32_t* out, std::int64_t window) const { read(out, window, 1); }

void TokenDataset::read(std::int32_t* out, std::int64_t window, std::int64_t shift) const {
  const auto next = std::upper_bound(first_window_.begin(), first_window_.end(), window);
  const std::size_t shard = static_cast<std::size_t>(next - first_window_.begin()) - 1;
  const std::int64_t position = (window - first_window_[shard]) * seq_len_ + shift;
  shards_.at(shard).read(out, position, seq_len_, vocab_);
}

void TokenDataset::require_rows(std::int64_t rows) const {
  if (window_count() >= rows) return;
  throw std::invalid_argument(describe() + ", " + std::to_string(window_count()) + " windows of " +
                              std::to_string(seq_len_) + " tokens, but one step takes " + std::to_string(rows) +
                              " rows; use more tokens or a smaller --seq-len, --micro-batch-size, --micro-batches or " +
                              "--data-parallel");
}

void TokenDataset::require_batches(std::int64_t batches, std::int64_t rows) const {
  const std::int64_t available = window_count() / rows;
  if (available >= batches) return;
  const std::string remedy = available > 0 ? "; give at most --val-batches " + std::to_string(available)
                                           : "; use more tokens or smaller steps";
  throw std::invalid_argument(describe() + ", enough for " + std::to_string(available) + " batches of " +
                              std::to_string(rows) + " rows of " + std::to_string(seq_len_) + " tokens, but " +
                              std::to_string(batches) + " are asked for" + remedy);
}

std::string TokenDataset::describe() const {
  return option_ + " '" + pattern_ + "' holds " + std::to_string(token_count()) + " tokens";
}

}  // namespace train_gpt

// Token files ("shards") cut into windows of T tokens.
//
// Windows are cut per shard: window k of a shard has the inputs [k*T, k*T + T) and, shifted by one, the targets [k*T +
// 1, k*T + T + 1), so a shard of n tokens has (n - 1) / T of them. The rest at the end of a shard is dropped, never
// padded, and no window crosses from one shard to the next. Windows are numbered through all shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace train_gpt {

class TokenDataset {
 public:
  // Maps every file that `pattern` names. `option` is its name in messages ("--train-data"), T = seq_len, and vocab is
  // the number of the model's ids. Data of up to a gigabyte are checked as a whole here; every id is checked when it is
  // read, too. Throws std::invalid_argument naming file, position, id and vocabulary, or what is wrong with a file (see
  // TokenFile), or that no window fits.
  TokenDataset(const std::string& pattern, const std::string& option, std::int64_t seq_len, std::int64_t vocab);

  std::int64_t window_count() const { return first_window_.back(); }
  std::int64_t token_count() const;
  std::int64_t seq_len() const { return seq_len_; }
  const std::vector<TokenFile>& shards() const { return shards_; }

  // out: (T). Throws std::invalid_argument if an id is not below the vocabulary.
  void read_inputs(std::int32_t* out, std::int64_t window) const;
  void read_targets(std::int32_t* out, std::int64_t window) const;

  // Training: throws std::invalid_argument if there are fewer windows than `rows`, those of one step.
  void require_rows(std::int64_t rows) const;

  // Validation reads `batches` batches of one step's rows, row r of batch k being window k*rows + r, and never wraps:
  // throws std::invalid_argument naming the number of batches there are.
  void require_batches(std::int64_t batches, std::int64_t rows) const;

 private:
  void read(std::int32_t* out, std::int64_t window, std::int64_t shift) const;
  std::string describe() const;

  std::string pattern_;
  std::string option_;
  std::int64_t seq_len_;
  std::int64_t vocab_;
  std::vector<TokenFile> shards_;
  std::vector<std::int64_t> first_window_;  // [shard], and the total at the end
};

}  // namespace train_gpt

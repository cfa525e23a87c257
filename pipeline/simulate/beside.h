// The collectives of one rank in a simulated step, beside its actions.
#pragma once

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "pipeline/simulate/collectives.h"

namespace train_gpt {

class Beside {
 public:
  // Keeps a reference.
  explicit Beside(const std::vector<Collective>& all) : all_(all), ends_(all.size(), 0.0), by_need_(all.size()) {
    std::iota(by_need_.begin(), by_need_.end(), std::size_t{0});
    std::ranges::stable_sort(by_need_, {}, [&](std::size_t i) { return all_[i].before; });
  }

  // Issues those that may start once `done` actions of the list are done, which is `now`.
  void issue(std::size_t done, double now) {
    for (; issued_ < all_.size() && all_[issued_].after <= done; ++issued_) {
      free_ = std::max(free_, now - all_[issued_].ahead) + all_[issued_].ms;
      ends_[issued_] = free_;
    }
  }

  // When all are complete that the action at `position` waits for, or one before it did.
  double awaited(std::size_t position) {
    for (; met_ < by_need_.size() && all_[by_need_[met_]].before <= position; ++met_) {
      if (by_need_[met_] >= issued_) throw std::invalid_argument("a collective is awaited before it is issued");
      awaited_ = std::max(awaited_, ends_[by_need_[met_]]);
    }
    return awaited_;
  }

  // Of the last one so far.
  double end() const { return free_; }

 private:
  const std::vector<Collective>& all_;
  std::vector<double> ends_;
  std::vector<std::size_t> by_need_;  // indices, `before` ascends
  std::size_t issued_ = 0, met_ = 0;
  double free_ = 0.0;  // when the next may start
  double awaited_ = 0.0;
};

}  // namespace train_gpt

#include "pipeline/simulate/beside.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace train_gpt {

Beside::Beside(const std::vector<Collective>& all) : all_(all), ends_(all.size(), 0.0), by_need_(all.size()) {
  std::iota(by_need_.begin(), by_need_.end(), std::size_t{0});
  std::ranges::stable_sort(by_need_, {}, [&](std::size_t i) { return all_[i].before; });
}

void Beside::issue(std::size_t done, double now) {
  for (; issued_ < all_.size() && all_[issued_].after <= done; ++issued_) {
    free_ = std::max(free_, now - all_[issued_].ahead) + all_[issued_].ms;
    ends_[issued_] = free_;
  }
}

double Beside::awaited(std::size_t position) {
  for (; met_ < by_need_.size() && all_[by_need_[met_]].before <= position; ++met_) {
    if (by_need_[met_] >= issued_) throw std::invalid_argument("a collective is awaited before it is issued");
    awaited_ = std::max(awaited_, ends_[by_need_[met_]]);
  }
  return awaited_;
}

}  // namespace train_gpt

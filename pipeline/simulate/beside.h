// The collectives of one rank in a simulated step, beside its actions.
#pragma once

#include <vector>

#include "pipeline/simulate/collectives.h"

namespace train_gpt {

class Beside {
 public:
  // Keeps a reference.
  explicit Beside(const std::vector<Collective>& all);

  // Issues those that may start once `done` actions of the list are done, which is `now`.
  void issue(std::size_t done, double now);

  // When all are complete that the action at `position` waits for, or one before it did.
  double awaited(std::size_t position);

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

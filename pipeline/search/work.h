// Counts how much a search has done, and asks whether it shall go on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace train_gpt::search {

class Work {
 public:
  // `go_on` is asked after about every million actions placed or evaluated; no function: always.
  explicit Work(std::function<bool()> go_on) : go_on_(std::move(go_on)) {}

  void add(std::int64_t actions) {
    constexpr std::int64_t kBetweenQuestions = 1'000'000;
    if ((pending_ += actions) < kBetweenQuestions) return;
    pending_ = 0;
    stopped_ = stopped_ || (go_on_ && !go_on_());
  }
  bool stopped() const { return stopped_; }

 private:
  std::function<bool()> go_on_;
  std::int64_t pending_ = 0;
  bool stopped_ = false;
};

}  // namespace train_gpt::search

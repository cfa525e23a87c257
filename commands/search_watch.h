// A search for which a user waits: after two seconds its progress goes to stderr, about every second; Ctrl-C and
// --search-seconds end it with the best result so far.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <string>

#include "pipeline/search/search.h"

namespace train_gpt {

class SearchWatch {
 public:
  // Handles SIGINT while it lives. `seconds` 0: no limit.
  explicit SearchWatch(double seconds);
  ~SearchWatch();
  SearchWatch(const SearchWatch&) = delete;
  SearchWatch& operator=(const SearchWatch&) = delete;

  // For SearchRequest::progress; the watch has to outlive the search.
  std::function<bool(const SearchProgress&)> progress();

 private:
  bool go_on(const SearchProgress& progress);
  void show(const SearchProgress& progress, double elapsed);

  using Clock = std::chrono::steady_clock;
  double seconds_;
  Clock::time_point start_ = Clock::now();
  double shown_ = 0;  // seconds since the start
  void (*previous_)(int) = SIG_DFL;
  std::size_t width_ = 0;  // of the line on the terminal
};

}  // namespace train_gpt

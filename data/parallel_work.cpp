#include "data/parallel_work.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace train_gpt {

void work_in_parallel(int threads, std::size_t count, const std::function<void(int, std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::mutex failing;
  const auto run = [&](int thread) {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(thread, i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(failing);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    const int useful = static_cast<int>(std::min(static_cast<std::size_t>(threads), count));
    for (int thread = 1; thread < useful; ++thread) others.emplace_back(run, thread);
    run(0);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace train_gpt

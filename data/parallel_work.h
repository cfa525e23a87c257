// Independent pieces of work shared among threads.
#pragma once

#include <cstddef>
#include <functional>

namespace train_gpt {

// Calls work(thread, i) for every i < count, each once, by `threads` threads (0 .. threads-1; the caller is number 0).
// Chance decides which thread does what. Rethrows the first failure of a call after all threads have ended.
void work_in_parallel(int threads, std::size_t count, const std::function<void(int, std::size_t)>& work);

}  // namespace train_gpt

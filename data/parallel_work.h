// Independent pieces of work shared out over threads.
#pragma once

#include <cstddef>
#include <functional>

namespace train_gpt {

// Calls work(thread, i) for every i < count, each once, by `threads` threads (0 .. threads-1; the caller is number 0).
// Which thread does what is left to chance. Throws what the first failing call threw, after all threads have ended.
void work_in_parallel(int threads, std::size_t count, const std::function<void(int, std::size_t)>& work);

}  // namespace train_gpt

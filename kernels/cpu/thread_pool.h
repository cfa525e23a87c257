// The threads of one cpu device. A team of std::threads rather than OpenMP, for three reasons: an idle worker sleeps
// after microseconds (libgomp's keep spinning for milliseconds, on a core that another rank needs, and its environment
// variables are read before main); a worker that the operating system has not woken yet is not waited for; and several
// teams live in one process (ranks as threads) under ThreadSanitizer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace train_gpt {

class ThreadPool {
 public:
  // threads >= 1, the calling thread included. Throws std::invalid_argument.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(index, worker) once for each index in [0, count), in any order, on any worker, and returns when all are
  // done. worker is in [0, threads()); worker 0 is the calling thread. Tasks must not throw on other workers, and must
  // not depend on who runs them. An exception on the calling thread (from the progress hook) waits for the tasks in
  // flight, drops the others and is passed on.
  template <typename Task>
  void run(std::int64_t count, const Task& task) {
    run(count, &task, &call<Task>);
  }

  // Calls task(begin, end) for the blocks [0, block), [block, 2 block) .. of [0, n).
  template <typename Task>
  void run_blocks(std::int64_t n, std::int64_t block, const Task& task) {
    run((n + block - 1) / block, [&](std::int64_t i, int) {
      const std::int64_t begin = i * block;
      task(begin, begin + block < n ? begin + block : n);
    });
  }

  void set_progress_hook(std::function<void()> hook) { hook_ = std::move(hook); }
  // For the middle of long tasks: calls the hook if this is the calling thread and the last call is kProgressInterval
  // ago.
  void progress(int worker);

  static constexpr std::chrono::microseconds kProgressInterval{1000};

 private:
  using Function = void (*)(const void* task, std::int64_t index, int worker);

  template <typename Task>
  static void call(const void* task, std::int64_t index, int worker) {
    (*static_cast<const Task*>(task))(index, worker);
  }
  void run(std::int64_t count, const void* task, Function function);
  bool claim(std::uint32_t* left);
  void work(int worker);
  void stop();
  void wait_for_finished(std::uint32_t claimed);

  std::vector<std::thread> workers_;
  std::function<void()> hook_;
  std::chrono::steady_clock::time_point last_progress_{};

  // The current job. Written by run() while nothing is left to claim, read by workers after a successful claim.
  const void* task_ = nullptr;
  Function function_ = nullptr;
  std::uint32_t count_ = 0;
  bool stopped_ = false;

  alignas(64) std::atomic<std::uint32_t> left_{0};      // tasks not yet claimed
  alignas(64) std::atomic<std::uint32_t> finished_{0};  // tasks done
};

}  // namespace train_gpt

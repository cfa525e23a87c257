#include "kernels/cpu/thread_pool.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>

namespace train_gpt {
namespace {

using Clock = std::chrono::steady_clock;

// How long a thread that has nothing to do keeps its core: longer than the gap between two operations of a stage,
// far shorter than a scheduling quantum.
constexpr std::chrono::microseconds kSpin{30};

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until ready() or kSpin has passed; returns ready().
template <typename Ready>
bool spin_until(const Ready& ready) {
  const Clock::time_point give_up = Clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < give_up);
  return ready();
}

// Counts a task as done even when it throws.
struct Finish {
  std::atomic<std::uint32_t>& finished;
  ~Finish() { finished.fetch_add(1, std::memory_order_release); }
};

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) throw std::invalid_argument("a device needs at least 1 thread, not " + std::to_string(threads));
  try {
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    const std::size_t started = workers_.size() + 1;
    stop();
    throw std::runtime_error("only " + std::to_string(started) + " of " + std::to_string(threads) +
                             " threads could be started (" + error.what() + "): lower --threads or OMP_NUM_THREADS");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopped_ = true;
  left_.store(std::numeric_limits<std::uint32_t>::max(), std::memory_order_release);
  left_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::progress(int worker) {
  if (worker != 0 || !hook_) return;
  const Clock::time_point now = Clock::now();
  if (now - last_progress_ < kProgressInterval) return;
  last_progress_ = now;
  hook_();
}

// Takes one task off the current job. Success acquires what run() wrote before it published the job: every change of
// left_ is a read-modify-write on top of that store.
bool ThreadPool::claim(std::uint32_t* left) {
  *left = left_.load(std::memory_order_relaxed);
  while (*left != 0) {
    if (left_.compare_exchange_weak(*left, *left - 1, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  }
  return false;
}

void ThreadPool::work(int worker) {
  for (;;) {
    if (!spin_until([this] { return left_.load(std::memory_order_relaxed) != 0; })) left_.wait(0);
    std::uint32_t left = 0;
    while (claim(&left)) {
      if (stopped_) return;
      function_(task_, count_ - left, worker);
      finished_.fetch_add(1, std::memory_order_release);
      finished_.notify_one();
    }
  }
}

void ThreadPool::wait_for_finished(std::uint32_t claimed) {
  if (spin_until([&] { return finished_.load(std::memory_order_acquire) == claimed; })) return;
  for (;;) {
    const std::uint32_t now = finished_.load(std::memory_order_acquire);
    if (now == claimed) return;
    finished_.wait(now, std::memory_order_acquire);
  }
}

void ThreadPool::run(std::int64_t count, const void* task, Function function) {
  if (workers_.empty() || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) {
      function(task, i, 0);
      progress(0);
    }
    return;
  }
  if (count >= std::numeric_limits<std::uint32_t>::max()) throw std::length_error("too many tasks in one operation");
  task_ = task;
  function_ = function;
  count_ = static_cast<std::uint32_t>(count);
  finished_.store(0, std::memory_order_relaxed);
  left_.store(count_, std::memory_order_release);
  left_.notify_all();

  std::uint32_t left = 0;
  try {
    while (claim(&left)) {
      {
        const Finish finish{finished_};
        function(task, count_ - left, 0);
      }
      progress(0);
    }
    progress(0);  // also when the other workers left nothing to claim
  } catch (...) {
    wait_for_finished(count_ - left_.exchange(0, std::memory_order_acquire));
    throw;
  }
  wait_for_finished(count_);
}

}  // namespace train_gpt

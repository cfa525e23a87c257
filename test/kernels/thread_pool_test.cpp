#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "test/kernels/device_fixture.h"

namespace train_gpt {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads = 1; threads <= 5; ++threads) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 300; ++round) {
      const int count = round % 40;
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      std::atomic<bool> workers_in_range{true};
      pool.run(count, [&](std::int64_t index, int worker) {
        ++calls[static_cast<std::size_t>(index)];
        if (worker < 0 || worker >= threads) workers_in_range = false;
      });
      for (const std::atomic<int>& call : calls) ASSERT_EQ(call, 1);
      EXPECT_TRUE(workers_in_range);
    }
  }
}

TEST(ThreadPool, RefusesNoThreads) { EXPECT_THROW(ThreadPool(0), std::invalid_argument); }

// Tasks that wait until the hook has been called end only if it is called while the operation runs.
TEST(ThreadPool, CallsTheHookOnTheCallingThreadDuringAnOperation) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> calls{0};
    bool elsewhere = false;
    pool.set_progress_hook([&] {
      ++calls;
      if (std::this_thread::get_id() != caller) elsewhere = true;
    });
    pool.run(threads, [&](std::int64_t, int worker) {
      while (calls < 3) pool.progress(worker);
    });
    EXPECT_GE(calls, 3);
    EXPECT_FALSE(elsewhere);
  }
}

// One of two tasks, which run at the same time, is not the caller's.
TEST(ThreadPool, OtherThreadsDoNotCallTheHook) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> elsewhere{false};
  std::atomic<int> begun{0};
  pool.set_progress_hook([&] { elsewhere = elsewhere || std::this_thread::get_id() != caller; });
  pool.run(2, [&](std::int64_t, int worker) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
    if (worker == 0) return;
    const auto end = std::chrono::steady_clock::now() + 3 * ThreadPool::kProgressInterval;
    while (std::chrono::steady_clock::now() < end) pool.progress(worker);
  });
  EXPECT_FALSE(elsewhere);
}

// Looking at messages takes time from the work: in a row of short tasks the hook rests in between.
TEST(ThreadPool, TheHookRestsBetweenCalls) {
  ThreadPool pool(1);
  int calls = 0;
  pool.set_progress_hook([&] { ++calls; });
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100000; ++i) pool.progress(0);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(calls, 1);
  EXPECT_LE(calls, 1 + took / ThreadPool::kProgressInterval);
}

TEST(ThreadPool, GoesOnAfterAnExceptionFromTheHook) {
  ThreadPool pool(3);
  std::atomic<int> running{0};
  pool.set_progress_hook([] { throw std::runtime_error("peer is gone"); });
  for (int round = 0; round < 50; ++round) {
    std::this_thread::sleep_for(ThreadPool::kProgressInterval);
    EXPECT_THROW(pool.run(1000,
                          [&](std::int64_t, int) {
                            ++running;
                            --running;
                          }),
                 std::runtime_error);
    EXPECT_EQ(running, 0);
  }
  pool.set_progress_hook(nullptr);
  std::atomic<int> calls{0};
  pool.run(100, [&](std::int64_t, int) { ++calls; });
  EXPECT_EQ(calls, 100);
}

// Ranks as threads of one process: every one has its own device.
TEST(CpuDevice, SeveralDevicesWorkAtOnce) {
  std::vector<std::thread> ranks;
  std::vector<Floats> results(3);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    ranks.emplace_back([&results, rank] {
      CpuFixture cpu(2);
      Device& device = *cpu;
      const std::int64_t N = 100, C = 300, OC = 500;
      Buffer in(device, random_floats(N * C, 1)), weight(device, random_floats(OC * C, 2)), out(device, Floats(N * OC));
      for (int i = 0; i < 10; ++i) device.matmul_forward(out, in, weight, nullptr, N, C, OC);
      results[rank] = out.values();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_TRUE(same_bits(results[0], results[1]));
  EXPECT_TRUE(same_bits(results[0], results[2]));
}

TEST(CpuDevice, AllocatesAlignedMemoryAndSaysWhenThereIsNone) {
  CpuFixture cpu(1);
  for (const std::int64_t bytes : {0, 1, 1000, 3 << 20}) {
    void* pointer = (*cpu).allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % (bytes < (2 << 20) ? 256 : 2 << 20), 0U) << "huge pages";
    (*cpu).release(pointer);
  }
  EXPECT_THROW((*cpu).allocate(-1), std::invalid_argument);
#if !defined(__SANITIZE_ADDRESS__)  // whose allocator ends the process instead
  try {
    (*cpu).allocate(std::int64_t{1} << 60);
    FAIL() << "allocated an exbibyte";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos) << error.what();
  }
#endif
}

TEST(CpuDevice, MarksAreMillisecondsOfOneClock) {
  CpuFixture cpu(1);
  const Device::Mark first = (*cpu).mark();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const Device::Mark second = (*cpu).mark();
  EXPECT_GE((*cpu).time_ms(second) - (*cpu).time_ms(first), 2.0);
}

}  // namespace
}  // namespace train_gpt

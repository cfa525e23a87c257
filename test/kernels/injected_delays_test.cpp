// Delays that are injected: whose they are, and how long a message takes at least. Nothing here fails because a machine
// is slow.
#include "kernels/injected_delays.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "kernels/local_communicator.h"
#include "test/refused.h"

namespace train_gpt {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// What `messages` messages of `bytes` bytes from rank 0 to rank 1, sent at once, take until the last of them is there.
double transfer_ms(const DelaySpec& spec, int messages, std::int64_t bytes) {
  double ms = 0;
  run_local_ranks(2, [&](Communicator& world) {
    const std::unique_ptr<Communicator> delayed = inject_delays(world.split(0, world.rank()), spec);
    const std::vector<Communicator::ChannelEnds> ends = {
        {.source = 0, .destination = 1, .bytes = bytes, .slots = messages}};
    delayed->open_channels(ends);
    const auto length = static_cast<std::size_t>(bytes);
    std::vector<std::vector<char>> data(static_cast<std::size_t>(messages));
    delayed->barrier();
    const Clock::time_point begin = Clock::now();
    std::vector<Ticket> tickets;
    for (int i = 0; i < messages; ++i) {
      std::vector<char>& one = data[static_cast<std::size_t>(i)];
      one.assign(length, delayed->rank() == 0 ? static_cast<char>(i + 1) : '\0');
      tickets.push_back(delayed->rank() == 0 ? delayed->send(0, one.data(), bytes)
                                             : delayed->receive(0, one.data(), bytes));
    }
    for (const Ticket ticket : tickets) delayed->await(ticket);
    if (delayed->rank() == 1) {
      ms = milliseconds_since(begin);
      for (int i = 0; i < messages; ++i) {
        EXPECT_EQ(data[static_cast<std::size_t>(i)], std::vector<char>(length, static_cast<char>(i + 1)));
      }
    }
    delayed->barrier();
  });
  return ms;
}

TEST(InjectedDelays, EveryPartOfTheTextIsANumberOfItsOwn) {
  const DelaySpec spec =
      parse_delays("message=1.5,receive=2.5,action=3.5,step=4.5,latency=5.5,bandwidth=6.5,rank=7,seed=8");
  EXPECT_EQ(spec.message, 1.5);
  EXPECT_EQ(spec.receive, 2.5);
  EXPECT_EQ(spec.action, 3.5);
  EXPECT_EQ(spec.step, 4.5);
  EXPECT_EQ(spec.latency, 5.5);
  EXPECT_EQ(spec.bandwidth, 6.5);
  EXPECT_EQ(spec.rank, 7);
  EXPECT_EQ(spec.seed, 8U);
}

TEST(InjectedDelays, WhatIsNoDelayIsRefused) {
  for (const char* text : {"massage=1", "latency", "latency=", "latency=-1", "latency=1ms", "latency=nan"}) {
    EXPECT_REFUSED(parse_delays(text), "--inject-delay", text);
  }
}

TEST(InjectedDelays, OnlyTheRankThatIsNamedHasThem) {
  run_local_ranks(2, [](Communicator& world) {
    for (const int named : {-1, 0, 1}) {
      std::unique_ptr<Communicator> inner = world.split(0, world.rank());
      const Communicator* const own = inner.get();
      const std::unique_ptr<Communicator> delayed = inject_delays(std::move(inner), {.latency = 1, .rank = named});
      EXPECT_EQ(delayed.get() == own, named >= 0 && named != world.rank()) << named;
    }
    std::unique_ptr<Communicator> inner = world.split(0, world.rank());
    const Communicator* const own = inner.get();
    EXPECT_EQ(inject_delays(std::move(inner), {.action = 1}).get(), own);  // actions are delayed by others
  });
}

TEST(InjectedDelays, AMessageTakesItsLatencyAtLeast) {
  EXPECT_GE(transfer_ms({.latency = 20}, 1, 8), 20);
  EXPECT_GE(transfer_ms({.link = [](int, int, int) { return DelaySpec::Link{.latency = 20}; }}, 1, 8), 20);
}

// At 0.1 GB/s 200,000 bytes take 2 ms, ten times of them 20.
TEST(InjectedDelays, MessagesOfAChannelFollowEachOther) {
  EXPECT_GE(transfer_ms({.bandwidth = 0.1}, 10, 200000), 20);
  EXPECT_GE(transfer_ms({.link = [](int, int, int) { return DelaySpec::Link{.bandwidth = 0.1}; }}, 10, 200000), 20);
}

}  // namespace
}  // namespace train_gpt

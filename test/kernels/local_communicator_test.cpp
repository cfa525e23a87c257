#include "kernels/local_communicator.h"

#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace train_gpt {
namespace {

// In floats, 1e8 + 1 is 1e8: the order of the sum decides.
float share(int rank, std::int64_t i) {
  const float values[] = {1, 1e8F, -1e8F, 3};
  return values[static_cast<std::size_t>(rank + i) % 4];
}

// Powers of two add in a balanced tree, others in rank order (kernels/sum_of_ranks.h).
TEST(LocalCommunicator, SumsRunInATreeOrInRankOrder) {
  constexpr std::int64_t kCount = 1000;
  const auto sum_of = [](int ranks, std::int64_t i) {
    if (ranks == 4) return (share(0, i) + share(1, i)) + (share(2, i) + share(3, i));
    return (share(0, i) + share(1, i)) + share(2, i);
  };
  for (const int ranks : {3, 4})
    run_local_ranks(ranks, [&](Communicator& world) {
      std::vector<float> data(kCount);
      for (std::int64_t i = 0; i < kCount; ++i) data[static_cast<std::size_t>(i)] = share(world.rank(), i);
      world.await(world.all_reduce(data.data(), kCount));
      for (std::int64_t i = 0; i < kCount; ++i) {
        if (data[static_cast<std::size_t>(i)] != sum_of(ranks, i))
          throw std::logic_error("element " + std::to_string(i));
      }
    });
}

TEST(LocalCommunicator, AMessageOfAnotherSizeIsAnError) {
  for (const std::int64_t sent : {96, 160}) {
    try {
      run_local_ranks(2, [sent](Communicator& world) {
        const Communicator::ChannelEnds ends = {.source = 0, .destination = 1, .bytes = 160, .slots = 1};
        world.open_channels({&ends, 1});
        std::vector<char> buffer(160);
        world.await(world.rank() == 0 ? world.send(0, buffer.data(), sent) : world.receive(0, buffer.data(), 128));
      });
      ADD_FAILURE() << sent << " bytes for 128 were taken";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(sent) + " bytes meets a receive of 128"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(LocalCommunicator, ASplitIsOrderedByItsKeys) {
  run_local_ranks(3, [](Communicator& world) {
    const auto reversed = world.split(0, -world.rank());
    if (reversed->rank() != 2 - world.rank()) throw std::logic_error("rank " + std::to_string(world.rank()));
  });
}

}  // namespace
}  // namespace train_gpt

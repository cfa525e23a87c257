#include "kernels/local_communicator.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace train_gpt {
namespace {

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

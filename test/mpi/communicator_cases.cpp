#include "test/mpi/communicator_cases.h"

#include <cstring>
#include <stdexcept>

#include "kernels/cpu/mpi_communicator.h"

namespace train_gpt::test {
namespace {

class Cases {
 public:
  explicit Cases(Communicator& world) : world_(world) {}

  std::vector<std::string> operator()() {
    short_message();
    long_message_in_pieces();
    sums_in_rank_order();
    host_sums_and_gathers();
    split_by_key();
    return std::move(wrong_);
  }

 private:
  void expect(bool right, const std::string& what) {
    if (!right) wrong_.push_back("rank " + std::to_string(world_.rank()) + ": " + what);
  }

  // From rank 0 to rank 1; the others look on.
  void open(Communicator& world) {
    const Communicator::ChannelEnds ends = {.source = 0, .destination = 1, .bytes = 1 << 20, .slots = 1};
    world.open_channels({&ends, 1});
  }

  void short_message() {
    open(world_);
    std::vector<char> buffer(128);
    if (world_.rank() == 0) world_.await(world_.send(0, buffer.data(), 96));
    if (world_.rank() == 1) {
      std::string message;
      try {
        world_.await(world_.receive(0, buffer.data(), 128));
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      expect(message == "MPI: a message of 96 bytes arrived on rank 1 where 128 were expected",
             "a message that is too short: '" + message + "'");
    }
    world_.barrier();
  }

  void long_message_in_pieces() {
    const auto pieces = make_mpi_communicator({.largest_message = 100});
    open(*pieces);
    std::vector<char> sent(1050), received(sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 + i / 100);
    const auto bytes = static_cast<std::int64_t>(sent.size());
    if (world_.rank() == 0) pieces->await(pieces->send(0, sent.data(), bytes));
    if (world_.rank() == 1) {
      pieces->await(pieces->receive(0, received.data(), bytes));
      expect(received == sent, "a message in pieces of 100 bytes is another");
    }
    std::vector<char> told = world_.rank() == 2 ? sent : std::vector<char>(sent.size());
    pieces->broadcast_host(told.data(), bytes, 2);
    expect(told == sent, "a broadcast in pieces of 100 bytes is another");
    world_.barrier();
  }

  // In floats, 1e8 + 1 is 1e8: the order of the sum decides.
  static float share(int rank, std::int64_t i) {
    const float values[] = {1, 1e8F, -1e8F, 3, 1e-3F, 5e7F, -5e7F, 1};
    return values[static_cast<std::size_t>(rank + i) % 8];
  }
  static float sum_in_rank_order(int ranks, std::int64_t i) {
    float sum = share(0, i);
    for (int r = 1; r < ranks; ++r) sum += share(r, i);
    return sum;
  }

  // Three ranks: some elements, and one more than a slice of each.
  void sums_in_rank_order() {
    const bool takes_part = world_.rank() < 3;
    const auto three = world_.split(takes_part ? 1 : 0, world_.rank());
    for (const std::int64_t count : {std::int64_t{5}, std::int64_t{1000}, 3 * (std::int64_t{1} << 19) + 1}) {
      if (!takes_part) break;
      std::vector<float> data(static_cast<std::size_t>(count));
      const auto fill = [&] {
        for (std::int64_t i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = share(three->rank(), i);
      };
      fill();
      three->await(three->all_reduce(data.data(), count));
      std::int64_t differing = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        differing += data[static_cast<std::size_t>(i)] != sum_in_rank_order(3, i) ? 1 : 0;
      }
      expect(differing == 0,
             std::to_string(differing) + " of " + std::to_string(count) + " sums are not in rank order");
      fill();
      three->await(three->reduce_scatter(data.data(), count));
      const auto [begin, end] = Communicator::piece(count, three->rank(), 3);
      differing = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        differing += data[static_cast<std::size_t>(i)] != sum_in_rank_order(3, i) ? 1 : 0;
      }
      expect(differing == 0, "a piece of a reduce-scatter is not the sum in rank order");
    }
    world_.barrier();
  }

  void host_sums_and_gathers() {
    const int ranks = world_.size();
    std::vector<double> sums(20000);
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] = static_cast<double>(world_.rank() + 1) * static_cast<double>(i);
    world_.all_reduce_host(sums);
    bool right = true;
    for (std::size_t i = 0; i < sums.size(); ++i)
      right = right && sums[i] == ranks * (ranks + 1) / 2.0 * static_cast<double>(i);
    expect(right, "the sum of doubles of all ranks is another");
    const std::string mine(static_cast<std::size_t>(world_.rank()), static_cast<char>('a' + world_.rank()));
    const auto all = world_.gather_host(mine, 1);
    for (std::size_t r = 0; r < all.size(); ++r) {
      expect(std::string(all[r].begin(), all[r].end()) == std::string(r, static_cast<char>('a' + r)),
             "rank " + std::to_string(r) + " gave other bytes");
    }
    expect(all.size() == (world_.rank() == 1 ? static_cast<std::size_t>(ranks) : 0),
           "the wrong rank has what was gathered");
  }

  void split_by_key() {
    const auto reversed = world_.split(0, -world_.rank());
    expect(reversed->rank() == world_.size() - 1 - world_.rank(), "a split in reverse has another order");
  }

  Communicator& world_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> wrong_with_messages(Communicator& world) { return Cases(world)(); }

}  // namespace train_gpt::test

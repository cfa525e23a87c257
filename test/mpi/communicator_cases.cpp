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
    sums_in_order();
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
    // On a communicator of its own, where nothing follows the failure.
    const auto pair = world_.split(0, world_.rank());
    open(*pair);
    std::vector<char> buffer(128);
    if (world_.rank() == 0) pair->await(pair->send(0, buffer.data(), 96));
    if (world_.rank() == 1) {
      std::string message;
      try {
        pair->await(pair->receive(0, buffer.data(), 128));
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
  // A binary tree of a power of two, and of other numbers in rank order: see Communicator.
  static float expected_sum(int begin, int ranks, std::int64_t i) {
    if (ranks == 1) return share(begin, i);
    const int last = ranks % 2 == 0 ? ranks / 2 : 1;
    return expected_sum(begin, ranks - last, i) + expected_sum(begin + ranks - last, last, i);
  }

  // Over all ranks, and over three: some elements, and one more than a slice of each.
  void sums_in_order() {
    expect_sums_in_order(world_, 1000);
    const bool takes_part = world_.rank() < 3;
    const auto three = world_.split(takes_part ? 1 : 0, world_.rank());
    for (const std::int64_t count : {std::int64_t{5}, std::int64_t{1000}, 3 * (std::int64_t{1} << 19) + 1}) {
      if (takes_part) expect_sums_in_order(*three, count);
    }
    world_.barrier();
  }

  // Where the pieces of `ranks` ranks begin, and the end: the first has nothing, the last has half.
  static std::vector<std::int64_t> unequal_cuts(std::int64_t count, int ranks) {
    std::vector<std::int64_t> cuts = {0};
    for (int r = 0; r + 1 < ranks; ++r) cuts.push_back(count / 2 * r / std::max(1, ranks - 2));
    cuts.push_back(count);
    return cuts;
  }

  void expect_sums_in_order(Communicator& ranks, std::int64_t count) {
    std::vector<float> data(static_cast<std::size_t>(count));
    const auto fill = [&] {
      for (std::int64_t i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = share(ranks.rank(), i);
    };
    const auto check = [&](const std::string& what, std::int64_t begin, std::int64_t end) {
      std::int64_t differing = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        differing += data[static_cast<std::size_t>(i)] != expected_sum(0, ranks.size(), i) ? 1 : 0;
      }
      expect(differing == 0, what + " of " + std::to_string(ranks.size()) + " ranks: " + std::to_string(differing) +
                                 " of " + std::to_string(count) + " sums are in another order");
    };
    fill();
    ranks.await(ranks.all_reduce(data.data(), count));
    check("all-reduce", 0, count);
    fill();
    const std::vector<std::int64_t> cuts = unequal_cuts(count, ranks.size());
    const std::int64_t begin = cuts[static_cast<std::size_t>(ranks.rank())];
    const std::int64_t end = cuts[static_cast<std::size_t>(ranks.rank()) + 1];
    ranks.await(ranks.reduce_scatter(data.data(), cuts));
    check("reduce-scatter", begin, end);
    std::fill(data.begin(), data.begin() + begin, 0.0F);
    std::fill(data.begin() + end, data.end(), 0.0F);
    ranks.await(ranks.all_gather(data.data(), cuts));
    check("all-gather", 0, count);
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

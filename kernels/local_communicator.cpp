#include "kernels/local_communicator.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "kernels/sum_of_ranks.h"

namespace train_gpt {
namespace {

// An operation is finished by whichever rank completes its other half; the flag is all that the owner looks at.
using Flag = std::shared_ptr<std::atomic<bool>>;

struct Half {
  void* data = nullptr;
  std::int64_t bytes = 0;
  Flag done;
};

struct ChannelQueue {
  std::deque<Half> sends;
  std::deque<Half> receives;
};

// Contributions of all ranks to one collective; the last rank to arrive does the work for all.
struct Meeting {
  std::vector<Half> halves;
  std::vector<std::vector<char>> parcels;
  int arrived = 0;
  int left = 0;
};

struct World {
  explicit World(int n, std::shared_ptr<std::atomic<bool>> failure_flag) : ranks(n), failed(std::move(failure_flag)) {}
  const int ranks;
  std::shared_ptr<std::atomic<bool>> failed;  // shared by all worlds of a run
  std::mutex mutex;
  std::vector<ChannelQueue> channels;
  std::map<std::int64_t, Meeting> meetings;                                 // by sequence number
  std::map<std::pair<std::int64_t, int>, std::shared_ptr<World>> children;  // by (sequence number, color)
};

void deliver(ChannelQueue& queue) {
  while (!queue.sends.empty() && !queue.receives.empty()) {
    const Half send = queue.sends.front();
    const Half receive = queue.receives.front();
    if (send.bytes != receive.bytes) {
      throw std::runtime_error("local communicator: a message of " + std::to_string(send.bytes) +
                               " bytes meets a receive of " + std::to_string(receive.bytes));
    }
    std::memcpy(receive.data, send.data, static_cast<std::size_t>(send.bytes));
    queue.sends.pop_front();
    queue.receives.pop_front();
    send.done->store(true, std::memory_order_release);
    receive.done->store(true, std::memory_order_release);
  }
}

enum class Reduction : std::uint8_t { everywhere, own_piece, gather };

// The piece of every rank becomes the sum over ranks; then the pieces are copied where they are wanted.
void combine(std::vector<Half>& halves, Reduction reduction, const std::vector<std::int64_t>& cuts) {
  const int ranks = static_cast<int>(halves.size());
  for (const Half& half : halves) {
    if (half.bytes != halves[0].bytes)
      throw std::runtime_error("local communicator: ranks disagree on a collective's size");
  }
  const auto at = [&](int r) { return static_cast<float*>(halves[static_cast<std::size_t>(r)].data); };
  for (int owner = 0; owner < ranks; ++owner) {
    const std::int64_t begin = cuts[static_cast<std::size_t>(owner)], end = cuts[static_cast<std::size_t>(owner) + 1];
    if (reduction != Reduction::gather) {
      std::vector<float*> parts;
      for (int r = 0; r < ranks; ++r) parts.push_back(at(r) + begin);
      sum_of_ranks(at(owner) + begin, parts, end - begin);
    }
    if (reduction == Reduction::own_piece) continue;
    for (int r = 0; r < ranks; ++r) {
      if (r != owner) std::copy(at(owner) + begin, at(owner) + end, at(r) + begin);
    }
  }
}

// The doubles of every rank become their sum, taken in rank order.
void sum_in_rank_order(std::vector<Half>& halves) {
  const std::int64_t count = halves[0].bytes / static_cast<std::int64_t>(sizeof(double));
  for (const Half& half : halves) {
    if (half.bytes != halves[0].bytes)
      throw std::runtime_error("local communicator: ranks disagree on the size of a sum");
  }
  for (std::int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (const Half& half : halves) sum += static_cast<double*>(half.data)[i];
    for (const Half& half : halves) static_cast<double*>(half.data)[i] = sum;
  }
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_->ranks; }

  void open_channels(std::span<const ChannelEnds> channels) override {
    {
      const std::lock_guard lock(world_->mutex);
      if (world_->channels.size() < channels.size()) world_->channels.resize(channels.size());
    }
    barrier();
  }

  Ticket send(int channel, const void* data, std::int64_t bytes) override {
    return post(channel, const_cast<void*>(data), bytes, &ChannelQueue::sends);
  }
  Ticket receive(int channel, void* data, std::int64_t bytes) override {
    return post(channel, data, bytes, &ChannelQueue::receives);
  }

  bool done(Ticket ticket) override {
    if (ticket == 0) return true;
    if (world_->failed->load()) throw std::runtime_error("local communicator: another rank failed");
    const auto found = flags_.find(ticket);
    if (found == flags_.end()) return true;
    if (!found->second->load(std::memory_order_acquire)) return false;
    flags_.erase(found);
    return true;
  }
  void await(Ticket ticket) override {
    wait_until([&] {
      if (done(ticket)) return true;
      idle();
      return false;
    });
  }
  void progress() override {}

  Ticket all_reduce(float* data, std::int64_t count) override {
    std::vector<std::int64_t> cuts = {0};
    for (int r = 0; r < size(); ++r) cuts.push_back(piece(count, r, size()).end);
    return reduce(data, std::move(cuts), Reduction::everywhere);
  }
  Ticket reduce_scatter(float* data, std::span<const std::int64_t> cuts) override {
    return reduce(data, {cuts.begin(), cuts.end()}, Reduction::own_piece);
  }
  Ticket all_gather(float* data, std::span<const std::int64_t> cuts) override {
    return reduce(data, {cuts.begin(), cuts.end()}, Reduction::gather);
  }
  Ticket start_one_hot_sum(std::span<double> data) override {
    if (size() == 1) return 0;
    return collective(data.data(), static_cast<std::int64_t>(data.size_bytes()), sum_in_rank_order);
  }

  void all_reduce_host(std::span<double> data) override {
    if (size() == 1) return;
    const auto parcels = exchange({reinterpret_cast<const char*>(data.data()), data.size_bytes()});
    for (std::size_t i = 0; i < data.size(); ++i) {
      double sum = 0;
      for (std::size_t r = 0; r < parcels.size(); ++r) {
        double value = 0;
        std::memcpy(&value, parcels[r].data() + i * sizeof(double), sizeof(double));
        sum = r == 0 ? value : sum + value;
      }
      data[i] = sum;
    }
  }
  void one_hot_sum(std::span<double> data) override { all_reduce_host(data); }
  void broadcast_host(void* data, std::int64_t bytes, int root) override {
    const auto size = rank_ == root ? static_cast<std::size_t>(bytes) : 0;
    const auto parcels = exchange({static_cast<const char*>(data), size});
    std::memcpy(data, parcels[static_cast<std::size_t>(root)].data(), static_cast<std::size_t>(bytes));
  }
  std::vector<std::vector<char>> gather_host(std::span<const char> data, int root) override {
    auto parcels = exchange(data);
    if (rank_ != root) parcels.clear();
    return parcels;
  }
  void barrier() override { exchange({}); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const std::int64_t sequence = next_meeting_;
    const int mine[2] = {color, key};
    const auto parcels = exchange({reinterpret_cast<const char*>(mine), sizeof mine});
    std::vector<std::pair<int, int>> members;  // (key, old rank) of my color
    for (int r = 0; r < size(); ++r) {
      int theirs[2];
      std::memcpy(theirs, parcels[static_cast<std::size_t>(r)].data(), sizeof theirs);
      if (theirs[0] == color) members.emplace_back(theirs[1], r);
    }
    std::sort(members.begin(), members.end());
    const auto me = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.second == rank_; });
    const std::lock_guard lock(world_->mutex);
    auto& child = world_->children[{sequence, color}];
    if (!child) child = std::make_shared<World>(static_cast<int>(members.size()), world_->failed);
    return std::make_unique<LocalCommunicator>(child, static_cast<int>(me - members.begin()));
  }

  [[noreturn]] void abort(int status) override {
    world_->failed->store(true);
    throw std::runtime_error("local communicator: aborted with status " + std::to_string(status));
  }

 private:
  Ticket remember(Flag flag) {
    flags_.emplace(++last_ticket_, std::move(flag));
    return last_ticket_;
  }

  Ticket post(int channel, void* data, std::int64_t bytes, std::deque<Half> ChannelQueue::*side) {
    auto flag = std::make_shared<std::atomic<bool>>(false);
    const std::lock_guard lock(world_->mutex);
    ChannelQueue& queue = world_->channels.at(static_cast<std::size_t>(channel));
    (queue.*side).push_back({data, bytes, flag});
    deliver(queue);
    return remember(flag);
  }

  Meeting& arrive(std::int64_t sequence) {
    Meeting& meeting = world_->meetings[sequence];
    meeting.halves.resize(static_cast<std::size_t>(size()));
    meeting.parcels.resize(static_cast<std::size_t>(size()));
    ++meeting.arrived;
    return meeting;
  }

  Ticket reduce(float* data, std::vector<std::int64_t> cuts, Reduction reduction) {
    const std::int64_t bytes = cuts.back() * static_cast<std::int64_t>(sizeof(float));
    return collective(data, bytes, [reduction, cuts = std::move(cuts)](std::vector<Half>& halves) {
      combine(halves, reduction, cuts);
    });
  }

  // `work` is done by the rank that arrives last, for all.
  Ticket collective(void* data, std::int64_t bytes, const std::function<void(std::vector<Half>&)>& work) {
    auto flag = std::make_shared<std::atomic<bool>>(false);
    const std::int64_t sequence = next_meeting_++;
    const std::lock_guard lock(world_->mutex);
    Meeting& meeting = arrive(sequence);
    meeting.halves[static_cast<std::size_t>(rank_)] = {data, bytes, flag};
    if (meeting.arrived == size()) {
      work(meeting.halves);
      for (const Half& half : meeting.halves) half.done->store(true, std::memory_order_release);
      world_->meetings.erase(sequence);
    }
    return remember(flag);
  }

  // False until all have arrived.
  bool take_parcels(std::int64_t sequence, std::vector<std::vector<char>>& parcels) {
    const std::lock_guard lock(world_->mutex);
    Meeting& meeting = world_->meetings.at(sequence);
    if (meeting.arrived < size()) return false;
    parcels = meeting.parcels;
    if (++meeting.left == size()) world_->meetings.erase(sequence);
    return true;
  }

  // Everybody's bytes, in rank order.
  std::vector<std::vector<char>> exchange(std::span<const char> data) {
    const std::int64_t sequence = next_meeting_++;
    {
      const std::lock_guard lock(world_->mutex);
      arrive(sequence).parcels[static_cast<std::size_t>(rank_)].assign(data.begin(), data.end());
    }
    std::vector<std::vector<char>> parcels;
    wait_until([&] {
      if (world_->failed->load()) throw std::runtime_error("local communicator: another rank failed");
      if (take_parcels(sequence, parcels)) return true;
      idle();  // without the lock: it may send
      return false;
    });
    return parcels;
  }

  std::shared_ptr<World> world_;
  int rank_;
  Ticket last_ticket_ = 0;
  std::int64_t next_meeting_ = 0;
  std::map<Ticket, Flag> flags_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks) {
  auto world = std::make_shared<World>(ranks, std::make_shared<std::atomic<bool>>(false));
  std::vector<std::unique_ptr<Communicator>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<LocalCommunicator>(world, r));
  return all;
}

void run_local_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  auto failed = std::make_shared<std::atomic<bool>>(false);
  auto world = std::make_shared<World>(ranks, failed);
  std::exception_ptr first;
  std::mutex first_mutex;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        LocalCommunicator communicator(world, r);
        body(communicator);
      } catch (...) {
        const std::lock_guard lock(first_mutex);
        if (!first) first = std::current_exception();
        failed->store(true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace train_gpt

#include "kernels/cuda/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/compute_stream.h"
#include "kernels/cuda/host_wait.h"
#include "kernels/cuda/multiprocessors.h"
#include "kernels/cuda/nccl_collectives.h"
#include "kernels/cuda/nccl_link.h"
#include "kernels/cuda/setup_deadline.h"
#include "kernels/forwarding_communicator.h"

namespace train_gpt {
namespace cuda {
namespace {

class NcclCommunicator final : public ForwardingCommunicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, const Device& device)
      : ForwardingCommunicator(std::move(host)),
        device_(device),
        compute_(compute_stream(device)),
        run_ahead_(compute_) {
    inner().set_idle_hook([this] {
      check_failures();
      idle();
    });
  }

  void open_channels(std::span<const ChannelEnds> channels) override;
  void open_collectives(std::int64_t most_elements) override;

  Ticket send(int channel, const void* data, std::int64_t bytes) override {
    NcclLink& link = channel_link(channel);
    link.side().follow_compute();
    check(ncclSend(data, static_cast<std::size_t>(bytes), ncclChar, /*peer=*/1, link.communicator(), link.stream()),
          link.communicator(), "send on " + link.name());
    return ticket_of(channel, link.side().close());
  }
  Ticket receive(int channel, void* data, std::int64_t bytes) override {
    NcclLink& link = channel_link(channel);
    link.side().follow_compute();
    check(ncclRecv(data, static_cast<std::size_t>(bytes), ncclChar, /*peer=*/0, link.communicator(), link.stream()),
          link.communicator(), "receive on " + link.name());
    return ticket_of(channel, link.side().close());
  }

  bool done(Ticket ticket) override {
    if (ticket < 0) return one_hot_sum_done(ticket);
    return ticket == 0 || link_of(ticket).side().done(number_of(ticket));
  }

  void await(Ticket ticket) override {
    if (ticket == 0) return;
    if (ticket < 0) return await_until([&] { return one_hot_sum_done(ticket); });
    link_of(ticket).side().await(number_of(ticket));
  }
  void catch_up() override { wait_on_host(run_ahead_.mark_all()); }
  // NCCL needs no help to make progress. To look for failures every few milliseconds is enough, and so it is for MPI,
  // which is idle within a step.
  void progress() override {
    keep_near_to_the_gpu();
    const auto now = std::chrono::steady_clock::now();
    if (now - last_look_ < std::chrono::milliseconds(2)) return;
    last_look_ = now;
    inner().progress();
    check_failures();
  }

  Ticket all_reduce(float* data, std::int64_t count) override {
    return collective([&](NcclCollectives& collectives) { collectives.all_reduce(data, count); });
  }
  Ticket reduce_scatter(float* data, std::span<const std::int64_t> cuts) override {
    return collective([&](NcclCollectives& collectives) { collectives.reduce_scatter(data, cuts); });
  }
  Ticket all_gather(float* data, std::span<const std::int64_t> cuts) override {
    return collective([&](NcclCollectives& collectives) { collectives.all_gather(data, cuts); });
  }

  Ticket start_one_hot_sum(std::span<double> data) override {
    const Ticket ticket = -(++one_hot_count_);
    one_hot_sums_[ticket] = inner().start_one_hot_sum(data);
    return ticket;
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<NcclCommunicator>(inner().split(color, key), device_);
  }

 private:
  // A ticket holds the number of a link (0 for collectives, a channel's own plus 1) and that of the operation on the
  // link's stream. Merges of the hosts count from -1 down.
  static constexpr int kNumberBits = 40;
  static Ticket ticket_of(int channel, std::int64_t number) {
    return (static_cast<Ticket>(channel + 1) << kNumberBits) | number;
  }
  static std::int64_t number_of(Ticket ticket) { return ticket & ((std::int64_t{1} << kNumberBits) - 1); }
  NcclLink& link_of(Ticket ticket) {
    const auto link = static_cast<int>(ticket >> kNumberBits);
    return link == 0 ? *collective_link_ : channel_link(link - 1);
  }
  NcclLink& channel_link(int channel) {
    NcclLink* link = channels_.at(static_cast<std::size_t>(channel)).get();
    if (link == nullptr) {
      throw std::logic_error("channel " + std::to_string(channel) + " does not end on rank " + std::to_string(rank()));
    }
    return *link;
  }

  std::vector<ncclUniqueId> exchange_ids(std::span<const ChannelEnds> channels);
  void open_channel(std::size_t index, const ChannelEnds& ends, const ncclUniqueId& id);

  template <typename Enqueue>
  Ticket collective(const Enqueue& enqueue) {
    if (size() == 1) return 0;
    if (collectives_ == nullptr) throw std::logic_error("a collective before open_collectives()");
    collective_link_->side().follow_compute();
    enqueue(*collectives_);
    return ticket_of(-1, collective_link_->side().close());
  }

  bool one_hot_sum_done(Ticket ticket) {
    const auto found = one_hot_sums_.find(ticket);
    if (found == one_hot_sums_.end()) return true;
    if (!inner().done(found->second)) return false;
    one_hot_sums_.erase(found);
    return true;
  }

  // Called after every operation. Nothing is enqueued while it waits, so that a call from within the wait returns at
  // once.
  void keep_near_to_the_gpu() {
    const std::int64_t enqueued = operations_enqueued(device_);
    if (run_ahead_.is_due(enqueued)) wait_on_host(run_ahead_.mark(enqueued));
  }

  void wait_on_host(cudaEvent_t event) {
    poll_until([&] {
      if (happened(event)) return true;
      progress();
      idle();
      return false;
    });
  }

  void check_failures() const {
    for (const auto& link : channels_) {
      if (link != nullptr) link->check_failure();
    }
    if (collective_link_ != nullptr) collective_link_->check_failure();
  }

  const Device& device_;
  cudaStream_t compute_;
  RunAhead run_ahead_;
  std::vector<std::unique_ptr<NcclLink>> channels_;  // null: neither end is this rank
  std::unique_ptr<NcclLink> collective_link_;
  std::unique_ptr<NcclCollectives> collectives_;
  std::map<Ticket, Ticket> one_hot_sums_;  // ours -> the host's communicator's
  Ticket one_hot_count_ = 0;
  std::chrono::steady_clock::time_point last_look_;
};

// One id per channel, made by its source, known to all.
std::vector<ncclUniqueId> NcclCommunicator::exchange_ids(std::span<const ChannelEnds> channels) {
  std::vector<ncclUniqueId> ids(channels.size());
  std::vector<char> mine;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    if (channels[i].source != rank()) continue;
    check(ncclGetUniqueId(&ids[i]), nullptr, "ncclGetUniqueId");
    mine.insert(mine.end(), ids[i].internal, ids[i].internal + sizeof ids[i].internal);
  }
  const std::vector<std::vector<char>> all = inner().gather_host(mine, 0);
  if (rank() == 0) {
    std::vector<std::size_t> taken(all.size(), 0);
    for (std::size_t i = 0; i < channels.size(); ++i) {
      const auto source = static_cast<std::size_t>(channels[i].source);
      std::memcpy(ids[i].internal, all[source].data() + taken[source], sizeof ids[i].internal);
      taken[source] += sizeof ids[i].internal;
    }
  }
  if (!ids.empty()) inner().broadcast_host(ids.data(), static_cast<std::int64_t>(ids.size() * sizeof ids[0]), 0);
  return ids;
}

void NcclCommunicator::open_channels(std::span<const ChannelEnds> channels) {
  channels_.clear();
  channels_.resize(channels.size());
  const std::vector<ncclUniqueId> ids = exchange_ids(channels);
  // Pairs whose lower rank is even, then the others: neighbours along the pipeline connect side by side instead of one
  // after the other. Any order serves that is the same on all ranks.
  for (const int parity : {0, 1}) {
    for (std::size_t i = 0; i < channels.size(); ++i) {
      const ChannelEnds& ends = channels[i];
      if (std::min(ends.source, ends.destination) % 2 != parity) continue;
      if (ends.source == rank() || ends.destination == rank()) open_channel(i, ends, ids[i]);
    }
  }
}

// Makes the communicator (source: rank 0 of 2) and sends one message, so that nothing is left to be set up in the first
// step.
void NcclCommunicator::open_channel(std::size_t index, const ChannelEnds& ends, const ncclUniqueId& id) {
  const std::string name = "channel " + std::to_string(index) + " (rank " + std::to_string(ends.source) + " to rank " +
                           std::to_string(ends.destination) + ")";
  const SetupDeadline deadline("rank " + std::to_string(rank()) + ": connecting " + name);
  const int place = ends.source == rank() ? 0 : 1;
  channels_[index] = std::make_unique<NcclLink>(id, place, 2, kChannelCtas, compute_, name);
  NcclLink& link = *channels_[index];
  void* message = nullptr;
  CUDA_CHECK(cudaMalloc(&message, 256));
  CUDA_CHECK(cudaMemsetAsync(message, 0, 256, link.stream()));
  const ncclResult_t result = place == 0 ? ncclSend(message, 256, ncclChar, 1, link.communicator(), link.stream())
                                         : ncclRecv(message, 256, ncclChar, 0, link.communicator(), link.stream());
  check(result, link.communicator(), "the first message on " + name);
  CUDA_CHECK(cudaStreamSynchronize(link.stream()));
  CUDA_CHECK(cudaFree(message));
}

void NcclCommunicator::open_collectives(std::int64_t /*most_elements*/) {
  if (size() == 1 || collectives_ != nullptr) return;
  ncclUniqueId id{};
  if (rank() == 0) check(ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId");
  inner().broadcast_host(&id, sizeof id, 0);
  const std::string name = "the collectives of " + std::to_string(size()) + " ranks";
  const SetupDeadline deadline("rank " + std::to_string(rank()) + ": connecting " + name);
  collective_link_ = std::make_unique<NcclLink>(id, rank(), size(), kCollectiveCtas, compute_, name);
  collectives_ = std::make_unique<NcclCollectives>(*collective_link_, rank(), size());
  collectives_->connect();
  CUDA_CHECK(cudaStreamSynchronize(collective_link_->stream()));
}

}  // namespace
}  // namespace cuda

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, const Device& device) {
  return std::make_unique<cuda::NcclCommunicator>(std::move(host), device);
}

}  // namespace train_gpt

#include "kernels/cuda/staged_communicator.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/compute_stream.h"
#include "kernels/cuda/host_wait.h"
#include "kernels/cuda/side_stream.h"
#include "kernels/forwarding_communicator.h"

namespace train_gpt {
namespace cuda {
namespace {

// A fixed number of pinned buffers of one size.
class PinnedSlots {
 public:
  PinnedSlots(int slots, std::int64_t bytes) : bytes_(bytes) {
    for (int i = 0; i < slots; ++i) {
      void* data = nullptr;
      CUDA_CHECK(cudaMallocHost(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
      all_.push_back(data);
    }
    free_ = all_;
  }
  ~PinnedSlots() {
    for (void* data : all_) cudaFreeHost(data);
  }
  PinnedSlots(const PinnedSlots&) = delete;
  PinnedSlots& operator=(const PinnedSlots&) = delete;

  std::int64_t bytes() const { return bytes_; }
  // Null: all are in use.
  void* take() {
    if (free_.empty()) return nullptr;
    void* data = free_.back();
    free_.pop_back();
    return data;
  }
  void give(void* data) { free_.push_back(data); }

 private:
  std::int64_t bytes_;
  std::vector<void*> all_;
  std::vector<void*> free_;
};

enum class Kind : std::uint8_t { send, receive, all_reduce, reduce_scatter, all_gather, one_hot_sum };

// An operation moves out of the device, between hosts, and into the device; a send ends with the second of these, a
// receive begins with it, and a one-hot sum of host data consists of it alone.
struct Operation {
  enum class State : std::uint8_t { copying_out, travelling, copying_in, complete };

  Kind kind = Kind::send;
  State state = State::copying_out;
  int channel = -1;
  void* device = nullptr;
  const void* source = nullptr;  // of a send
  std::int64_t bytes = 0;
  std::span<const std::int64_t> cuts = {};  // of a reduce-scatter or an all-gather
  PinnedSlots* slots = nullptr;
  void* pinned = nullptr;       // of `slots`
  std::int64_t copied_out = 0;  // number on the outgoing stream
  std::int64_t copied_in = 0;   // on the incoming stream
  Ticket travel = 0;            // of the host's communicator
  bool awaited = false;
};

class StagedCommunicator final : public ForwardingCommunicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, cudaStream_t compute)
      : ForwardingCommunicator(std::move(host)), compute_(compute), out_(compute), in_(compute) {
    inner().set_idle_hook([this] {
      advance();
      idle();
    });
  }

  void open_channels(std::span<const ChannelEnds> channels) override {
    inner().open_channels(channels);
    channels_.clear();
    for (const ChannelEnds& ends : channels) {
      channels_.push_back(std::make_unique<PinnedSlots>(ends.slots, ends.bytes));
    }
  }
  void open_collectives(std::int64_t most_elements) override {
    inner().open_collectives(most_elements);
    if (size() == 1) return;
    collectives_ = std::make_unique<PinnedSlots>(1, most_elements * static_cast<std::int64_t>(sizeof(float)));
  }

  Ticket send(int channel, const void* data, std::int64_t bytes) override {
    Operation operation{.kind = Kind::send, .channel = channel, .source = data, .bytes = bytes};
    take(operation, channels_.at(static_cast<std::size_t>(channel)).get());
    return start(operation);
  }
  Ticket receive(int channel, void* data, std::int64_t bytes) override {
    Operation operation{.kind = Kind::receive, .channel = channel, .device = data, .bytes = bytes};
    take(operation, channels_.at(static_cast<std::size_t>(channel)).get());
    return start(operation);
  }
  Ticket all_reduce(float* data, std::int64_t count) override { return collective(Kind::all_reduce, data, count); }
  Ticket reduce_scatter(float* data, std::span<const std::int64_t> cuts) override {
    return collective(Kind::reduce_scatter, data, cuts.back(), cuts);
  }
  Ticket all_gather(float* data, std::span<const std::int64_t> cuts) override {
    return collective(Kind::all_gather, data, cuts.back(), cuts);
  }

  bool done(Ticket ticket) override {
    advance();
    const auto found = operations_.find(ticket);
    if (found == operations_.end()) return true;
    const bool complete = found->second.state == Operation::State::complete;
    if (complete) operations_.erase(found);  // the host knows: nothing is left to order
    return complete;
  }

  // A send is over when its pinned buffer is free for the next message of its slot. An incoming message must be here
  // before the compute stream can be told to wait for its copy.
  void await(Ticket ticket) override {
    const auto found = operations_.find(ticket);
    if (found == operations_.end()) return;
    Operation& operation = found->second;
    if (operation.kind == Kind::send || operation.kind == Kind::one_hot_sum) {
      await_until([&] { return operation.state == Operation::State::complete; });
    } else {
      poll_until([&] {
        advance();
        if (operation.copied_in != 0) return true;
        idle();
        return false;
      });
      in_.await(operation.copied_in);
    }
    operation.awaited = true;
  }
  void progress() override {
    inner().progress();
    advance();
  }

  Ticket start_one_hot_sum(std::span<double> data) override {
    Operation operation{.kind = Kind::one_hot_sum};
    operation.travel = inner().start_one_hot_sum(data);
    operation.state = Operation::State::travelling;
    return keep(operation);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<StagedCommunicator>(inner().split(color, key), compute_);
  }

 private:
  Ticket collective(Kind kind, float* data, std::int64_t count, std::span<const std::int64_t> cuts = {}) {
    if (size() == 1 || count == 0) return 0;
    Operation operation{.kind = kind,
                        .device = data,
                        .source = data,
                        .bytes = count * static_cast<std::int64_t>(sizeof(float)),
                        .cuts = cuts};
    take(operation, collectives_.get());
    return start(operation);
  }

  // Gives the operation a pinned buffer. A channel has as many as its ring has slots, so one is free, or will be as
  // soon as what arrived in it has been copied to the device.
  void take(Operation& operation, PinnedSlots* slots) {
    if (slots == nullptr || operation.bytes > slots->bytes()) {
      throw std::logic_error("an operation of " + std::to_string(operation.bytes) + " bytes, but " +
                             std::to_string(slots == nullptr ? 0 : slots->bytes()) +
                             " is what open_channels() or open_collectives() was told");
    }
    operation.slots = slots;
    poll_until([&] {
      operation.pinned = slots->take();
      if (operation.pinned != nullptr) return true;
      advance();
      idle();
      return false;
    });
  }

  Ticket start(Operation& operation) {
    if (operation.kind == Kind::receive) {
      operation.travel = inner().receive(operation.channel, operation.pinned, operation.bytes);
      operation.state = Operation::State::travelling;
    } else {
      out_.follow_compute();
      CUDA_CHECK(cudaMemcpyAsync(operation.pinned, operation.source, static_cast<std::size_t>(operation.bytes),
                                 cudaMemcpyDeviceToHost, out_.stream()));
      operation.copied_out = out_.close();
    }
    return keep(operation);
  }

  Ticket keep(const Operation& operation) {
    operations_.emplace(++started_, operation);
    return started_;
  }

  // Moves every operation on, oldest first, so that messages of a channel and collectives keep their order.
  void advance() {
    for (auto it = operations_.begin(); it != operations_.end();) {
      advance(it->second);
      const bool over = it->second.state == Operation::State::complete && it->second.awaited;
      it = over ? operations_.erase(it) : std::next(it);
    }
  }

  // One state per call: an operation that this call starts is not tested in it.
  void advance(Operation& operation) {
    switch (operation.state) {
      case Operation::State::copying_out:
        if (!out_.done(operation.copied_out)) return;
        operation.travel = set_off(operation);
        operation.state = Operation::State::travelling;
        return;
      case Operation::State::travelling:
        if (!inner().done(operation.travel)) return;
        if (operation.kind == Kind::send || operation.kind == Kind::one_hot_sum) {
          finish(operation);
        } else {
          copy_in(operation);
        }
        return;
      case Operation::State::copying_in:
        if (in_.done(operation.copied_in)) finish(operation);
        return;
      case Operation::State::complete:
        return;
    }
  }

  Ticket set_off(const Operation& operation) {
    auto* values = static_cast<float*>(operation.pinned);
    const std::int64_t count = operation.bytes / static_cast<std::int64_t>(sizeof(float));
    switch (operation.kind) {
      case Kind::all_reduce:
        return inner().all_reduce(values, count);
      case Kind::reduce_scatter:
        return inner().reduce_scatter(values, operation.cuts);
      case Kind::all_gather:
        return inner().all_gather(values, operation.cuts);
      default:
        return inner().send(operation.channel, operation.pinned, operation.bytes);
    }
  }

  // After what is on the compute stream now, which may still read the buffer: that waits for more than it must (for
  // what came after the receive was started), and never for anything that waits for this copy.
  void copy_in(Operation& operation) {
    in_.follow_compute();
    CUDA_CHECK(cudaMemcpyAsync(operation.device, operation.pinned, static_cast<std::size_t>(operation.bytes),
                               cudaMemcpyHostToDevice, in_.stream()));
    operation.copied_in = in_.close();
    operation.state = Operation::State::copying_in;
  }

  void finish(Operation& operation) {
    if (operation.slots != nullptr) operation.slots->give(operation.pinned);
    operation.state = Operation::State::complete;
  }

  cudaStream_t compute_;
  std::vector<std::unique_ptr<PinnedSlots>> channels_;
  std::unique_ptr<PinnedSlots> collectives_;
  SideStream out_;
  SideStream in_;
  std::map<Ticket, Operation> operations_;
  Ticket started_ = 0;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host, const Device& device) {
  return std::make_unique<cuda::StagedCommunicator>(std::move(host), cuda::compute_stream(device));
}

}  // namespace train_gpt

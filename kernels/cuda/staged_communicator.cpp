#include "kernels/cuda/staged_communicator.h"

#include <cstdlib>
#include <map>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/host_wait.h"
#include "kernels/cuda/side_stream.h"

namespace train_gpt {
namespace cuda {
namespace {

// Pinned buffers, handed out again and again.
class PinnedPool {
 public:
  struct Buffer {
    void* data = nullptr;
    std::int64_t bytes = 0;
  };

  PinnedPool() = default;
  ~PinnedPool() {
    for (const Buffer& buffer : all_) cudaFreeHost(buffer.data);
  }
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  Buffer take(std::int64_t bytes) {
    for (std::size_t i = 0; i < free_.size(); ++i) {
      if (free_[i].bytes < bytes) continue;
      const Buffer found = free_[i];
      free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
      return found;
    }
    Buffer made{.bytes = bytes};
    CUDA_CHECK(cudaMallocHost(&made.data, static_cast<std::size_t>(bytes)));
    all_.push_back(made);
    return made;
  }
  void give(const Buffer& buffer) { free_.push_back(buffer); }

 private:
  std::vector<Buffer> all_;
  std::vector<Buffer> free_;
};

enum class Kind : std::uint8_t { send, receive, all_reduce, reduce_scatter, all_gather };

// An operation moves out of the device, over the host and into the device; a send ends with the second of these, a
// receive begins with it.
struct Operation {
  enum class State : std::uint8_t { copying_out, travelling, copying_in, complete };

  Kind kind = Kind::send;
  State state = State::copying_out;
  int channel = -1;
  void* device = nullptr;
  const void* source = nullptr;  // of a send
  std::int64_t bytes = 0;
  PinnedPool::Buffer pinned = {};
  std::int64_t copied_out = 0;  // number on the outgoing stream
  std::int64_t copied_in = 0;   // on the incoming stream
  Ticket travel = 0;            // of the host's communicator
  bool awaited = false;
};

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, cudaStream_t compute)
      : host_(std::move(host)), compute_(compute), out_(compute), in_(compute) {
    host_->set_idle_hook([this] {
      advance();
      idle();
    });
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void open_channels(std::span<const ChannelEnds> channels) override { host_->open_channels(channels); }
  void open_collectives() override { host_->open_collectives(); }

  Ticket send(int channel, const void* data, std::int64_t bytes) override {
    Operation operation{.kind = Kind::send, .channel = channel, .source = data, .bytes = bytes};
    operation.pinned = pinned_.take(bytes);
    return start(operation);
  }
  Ticket receive(int channel, void* data, std::int64_t bytes) override {
    Operation operation{.kind = Kind::receive, .channel = channel, .device = data, .bytes = bytes};
    operation.pinned = pinned_.take(bytes);
    return start(operation);
  }
  Ticket all_reduce(float* data, std::int64_t count) override { return collective(Kind::all_reduce, data, count); }
  Ticket reduce_scatter(float* data, std::int64_t count) override {
    return collective(Kind::reduce_scatter, data, count);
  }
  Ticket all_gather(float* data, std::int64_t count) override { return collective(Kind::all_gather, data, count); }

  bool done(Ticket ticket) override {
    advance();
    const auto found = operations_.find(ticket);
    return found == operations_.end() || found->second.state == Operation::State::complete;
  }

  // A send's buffer is free once it is copied out. What comes in must first be here.
  void await(Ticket ticket) override {
    const auto found = operations_.find(ticket);
    if (found == operations_.end()) return;
    Operation& operation = found->second;
    if (operation.kind == Kind::send) {
      out_.await(operation.copied_out);
    } else {
      poll_until([&] {
        advance();
        if (operation.copied_in != 0) return true;
        idle();
        return false;
      });
      if (operation.copied_out != 0) out_.await(operation.copied_out);
      in_.await(operation.copied_in);
    }
    operation.awaited = true;
  }
  void progress() override {
    host_->progress();
    advance();
  }

  void all_reduce_host(std::span<double> data) override { host_->all_reduce_host(data); }
  void merge_host(std::span<double> data) override { host_->merge_host(data); }
  void broadcast_host(void* data, std::int64_t bytes, int root) override { host_->broadcast_host(data, bytes, root); }
  std::vector<std::vector<char>> gather_host(std::span<const char> data, int root) override {
    return host_->gather_host(data, root);
  }
  void barrier() override { host_->barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<StagedCommunicator>(host_->split(color, key), compute_);
  }
  [[noreturn]] void abort(int status) override {
    host_->abort(status);
    std::abort();
  }

 private:
  Ticket collective(Kind kind, float* data, std::int64_t count) {
    if (size() == 1 || count == 0) return 0;
    Operation operation{
        .kind = kind, .device = data, .source = data, .bytes = count * static_cast<std::int64_t>(sizeof(float))};
    operation.pinned = pinned_.take(operation.bytes);
    return start(operation);
  }

  Ticket start(Operation& operation) {
    if (operation.kind == Kind::receive) {
      operation.travel = host_->receive(operation.channel, operation.pinned.data, operation.bytes);
      operation.state = Operation::State::travelling;
    } else {
      out_.follow_compute();
      CUDA_CHECK(cudaMemcpyAsync(operation.pinned.data, operation.source, static_cast<std::size_t>(operation.bytes),
                                 cudaMemcpyDeviceToHost, out_.stream()));
      operation.copied_out = out_.close();
    }
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

  void advance(Operation& operation) {
    if (operation.state == Operation::State::copying_out && out_.done(operation.copied_out)) {
      operation.travel = set_off(operation);
      operation.state = Operation::State::travelling;
    }
    if (operation.state == Operation::State::travelling && host_->done(operation.travel)) {
      if (operation.kind == Kind::send) {
        finish(operation);
      } else {
        copy_in(operation);
      }
    }
    if (operation.state == Operation::State::copying_in && in_.done(operation.copied_in)) finish(operation);
  }

  Ticket set_off(const Operation& operation) {
    auto* values = static_cast<float*>(operation.pinned.data);
    const std::int64_t count = operation.bytes / static_cast<std::int64_t>(sizeof(float));
    switch (operation.kind) {
      case Kind::all_reduce:
        return host_->all_reduce(values, count);
      case Kind::reduce_scatter:
        return host_->reduce_scatter(values, count);
      case Kind::all_gather:
        return host_->all_gather(values, count);
      default:
        return host_->send(operation.channel, operation.pinned.data, operation.bytes);
    }
  }

  // After what is on the compute stream now, which may still read the buffer: that waits for more than it must (for
  // what came after the receive was started), and never for anything that waits for this copy.
  void copy_in(Operation& operation) {
    in_.follow_compute();
    CUDA_CHECK(cudaMemcpyAsync(operation.device, operation.pinned.data, static_cast<std::size_t>(operation.bytes),
                               cudaMemcpyHostToDevice, in_.stream()));
    operation.copied_in = in_.close();
    operation.state = Operation::State::copying_in;
  }

  void finish(Operation& operation) {
    pinned_.give(operation.pinned);
    operation.state = Operation::State::complete;
  }

  std::unique_ptr<Communicator> host_;
  cudaStream_t compute_;
  PinnedPool pinned_;
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

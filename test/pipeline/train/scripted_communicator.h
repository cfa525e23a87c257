// A communicator of one rank whose peers are the test: it writes down what is sent, received and awaited.
#pragma once

#include <functional>
#include <set>
#include <stdexcept>
#include <vector>

#include "kernels/communicator.h"

namespace train_gpt::test {

class ScriptedCommunicator final : public Communicator {
 public:
  struct Operation {
    bool sends = false;
    int channel = -1;
    const void* data = nullptr;
    std::int64_t bytes = 0;
  };

  ScriptedCommunicator(int rank, int size) : rank_(rank), size_(size) {}

  // Called before each await(), and then the operation is done.
  std::function<void(Ticket)> on_await;

  const Operation& operation(Ticket ticket) const { return operations_.at(static_cast<std::size_t>(ticket) - 1); }
  const std::vector<Operation>& operations() const { return operations_; }
  bool is_done(Ticket ticket) const { return ticket == 0 || awaited_.contains(ticket); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void open_channels(std::span<const ChannelEnds>) override {}
  Ticket send(int channel, const void* data, std::int64_t bytes) override {
    return add({.sends = true, .channel = channel, .data = data, .bytes = bytes});
  }
  Ticket receive(int channel, void* data, std::int64_t bytes) override {
    return add({.sends = false, .channel = channel, .data = data, .bytes = bytes});
  }
  bool done(Ticket ticket) override { return is_done(ticket); }
  void await(Ticket ticket) override {
    if (on_await) on_await(ticket);
    awaited_.insert(ticket);
  }
  void progress() override {}
  Ticket all_reduce(float*, std::int64_t) override { return none(); }
  Ticket reduce_scatter(float*, std::span<const std::int64_t>) override { return none(); }
  Ticket all_gather(float*, std::span<const std::int64_t>) override { return none(); }
  void all_reduce_host(std::span<double>) override { none(); }
  void one_hot_sum(std::span<double>) override { none(); }
  Ticket start_one_hot_sum(std::span<double>) override { return none(); }
  void broadcast_host(void*, std::int64_t, int) override { none(); }
  std::vector<std::vector<char>> gather_host(std::span<const char>, int) override {
    return none(), std::vector<std::vector<char>>{};
  }
  void barrier() override { none(); }
  std::unique_ptr<Communicator> split(int, int) override { return none(), nullptr; }
  [[noreturn]] void abort(int) override { throw std::logic_error("not in the script"); }

 private:
  static Ticket none() { throw std::logic_error("not in the script"); }
  Ticket add(const Operation& operation) {
    operations_.push_back(operation);
    return static_cast<Ticket>(operations_.size());
  }

  int rank_;
  int size_;
  std::vector<Operation> operations_;
  std::set<Ticket> awaited_;
};

}  // namespace train_gpt::test

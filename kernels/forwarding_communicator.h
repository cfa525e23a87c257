// A communicator built on another one. The inner communicator serves the host's side: ranks, small data, barriers and
// the end of the job. Derived classes implement messages and collectives on tensors.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/communicator.h"

namespace train_gpt {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  void all_reduce_host(std::span<double> data) override { inner_->all_reduce_host(data); }
  void one_hot_sum(std::span<double> data) override { inner_->one_hot_sum(data); }
  void broadcast_host(void* data, std::int64_t bytes, int root) override { inner_->broadcast_host(data, bytes, root); }
  std::vector<std::vector<char>> gather_host(std::span<const char> data, int root) override {
    return inner_->gather_host(data, root);
  }
  void barrier() override { inner_->barrier(); }
  [[noreturn]] void abort(int status) override {
    inner_->abort(status);
    std::abort();
  }

 protected:
  Communicator& inner() { return *inner_; }

 private:
  std::unique_ptr<Communicator> inner_;
};

}  // namespace train_gpt

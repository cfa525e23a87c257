// A copy of a rank's parameters and moments in the host's memory, from which a thread of its own can write them while
// training goes on. It takes what the plan says (RankPlan::copy_bytes), once.
#pragma once

#include <memory>
#include <new>
#include <string>

#include "kernels/device.h"
#include "model/config.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

class StateCopy {
 public:
  // Copies only what this rank writes. The referenced objects outlive it. Throws std::runtime_error where the host
  // lacks the memory.
  StateCopy(Device& device, Trainer& trainer, const ModelConfig& model);

  OptimizerKind optimizer() const { return memory_.plan().layout.optimizer; }
  // Bytes.
  std::int64_t size() const { return size_; }
  // Copies the state; on the rank's own thread, between two steps.
  void take(bool moments);
  // Write this rank's part of the files that create_model_file() and create_optimizer_file() made, and return when it
  // is on the disk. On any thread: neither the device nor other ranks are needed.
  void write_model(const std::string& path) const;
  void write_moments(const std::string& path) const;

 private:
  struct Release {
    void operator()(std::byte* memory) const;
  };
  // Bytes of the copy before those of one use.
  std::int64_t before(MemoryUse use) const;
  float* at(MemoryUse use) const { return reinterpret_cast<float*>(bytes_.get() + before(use)); }

  Device& device_;
  Trainer& trainer_;
  const RankMemory& memory_;
  const ModelConfig& model_;
  std::unique_ptr<Device> host_;  // reads the copy
  std::unique_ptr<std::byte, Release> bytes_;
  std::int64_t size_ = 0;
};

}  // namespace train_gpt

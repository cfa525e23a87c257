// A copy of a rank's parameters and moments in the host's memory, from which a thread of its own can write them while
// training goes on. It takes what the plan says (RankPlan::copy_bytes), once.
#pragma once

#include <memory>
#include <new>
#include <string>

#include "kernels/device.h"
#include "model/config.h"
#include "pipeline/train/rank_memory.h"

namespace train_gpt {

class StateCopy {
 public:
  // The referenced objects outlive it. `owns`: this rank writes (Groups::owns_parameters); otherwise nothing is copied.
  // Throws std::runtime_error where the host has no such memory.
  StateCopy(Device& device, const RankMemory& memory, const ModelConfig& model, bool owns);

  // Of its memory.
  std::int64_t bytes() const { return bytes_ ? memory_.plan().copy_bytes : 0; }
  // On the rank's own thread, between two steps.
  void take(bool moments);
  // This rank's part of files that create_model_file() and create_optimizer_file() made, on the disk when it returns.
  // On any thread: it needs neither the device nor other ranks.
  void write_model(const std::string& path) const;
  void write_moments(const std::string& path) const;

 private:
  struct Release {
    void operator()(std::byte* memory) const;
  };
  float* at(MemoryUse use) const;

  Device& device_;
  const RankMemory& memory_;
  const ModelConfig& model_;
  std::unique_ptr<Device> host_;  // reads the copy
  std::unique_ptr<std::byte, Release> bytes_;
};

}  // namespace train_gpt

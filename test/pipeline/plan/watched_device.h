// A cpu device that knows which of its memory was ever written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/product.h"

namespace train_gpt::test {

// Counts what is allocated, and tells afterwards which lines were written.
class WatchedDevice : public cpu::CpuDevice {
 public:
  using CpuDevice::CpuDevice;
  static constexpr std::int64_t kLine = 256;  // everything in a plan is a multiple of it

  struct Block {
    void* memory = nullptr;
    std::int64_t bytes = 0;
  };

  void* allocate(std::int64_t bytes) override {
    void* memory = CpuDevice::allocate(bytes);
    blocks_.push_back({memory, bytes});
    mark_unused(blocks_.back());
    allocated_ += bytes;
    return memory;
  }
  // Whole blocks are set to zero when they are made, which is no use of them. Until training begins they keep their
  // mark: a positive number far below all others, so that moments may begin with it.
  void zero(void* memory, std::int64_t bytes) override {
    const bool is_block = std::ranges::any_of(
        blocks_, [&](const Block& block) { return block.memory == memory && block.bytes == bytes; });
    if (trains_ || !is_block) CpuDevice::zero(memory, bytes);
  }
  void begin_training() { trains_ = true; }
  std::int64_t allocated() const { return allocated_; }
  const std::vector<Block>& blocks() const { return blocks_; }

  static void mark_unused(const Block& block) {
    std::memset(block.memory, kNeverWritten, static_cast<std::size_t>(block.bytes));
  }
  static std::int64_t used(const Block& block) {
    std::int64_t bytes = 0;
    for (std::int64_t at = 0; at < block.bytes; at += kLine) bytes += written(block, at) ? kLine : 0;
    return bytes;
  }
  // The panels that products pack have one size for all shapes (kernels/cpu/product.h), which small shapes do not fill;
  // they come first in each thread's part of the workspace. They count as used.
  static void mark_panels_used(const Block& workspace, int threads) {
    for (int thread = 0; thread < threads; ++thread) {
      char* part = static_cast<char*>(workspace.memory) + workspace.bytes / threads * thread;
      std::memset(part, 0, static_cast<std::size_t>(cpu::kProductScratch) * sizeof(float));
    }
  }
  static std::int64_t first_unused(const Block& block) {
    std::int64_t at = 0;
    while (at < block.bytes && written(block, at)) at += kLine;
    return at;
  }

 private:
  static constexpr int kNeverWritten = 0x25;

  static bool written(const Block& block, std::int64_t at) {
    const auto* line = static_cast<const unsigned char*>(block.memory) + at;
    return std::any_of(line, line + kLine, [](unsigned char byte) { return byte != kNeverWritten; });
  }

  std::vector<Block> blocks_;
  std::int64_t allocated_ = 0;
  bool trains_ = false;
};

}  // namespace train_gpt::test

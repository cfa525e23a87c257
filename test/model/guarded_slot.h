// Memory of exactly the planned bytes that shows when a stage relies on anything else: NaN before use, guards on both
// sides, and a new address between actions.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

class GuardedSlot {
 public:
  GuardedSlot() = default;
  explicit GuardedSlot(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) { place_anew(); }
  ~GuardedSlot() { check(); }
  GuardedSlot(GuardedSlot&&) = default;
  GuardedSlot& operator=(GuardedSlot&&) = default;

  // Null for a slot of no bytes.
  void* data() const { return bytes_ == 0 ? nullptr : memory_.get() + kGuard; }

  // Moves the contents to another address and ruins what lay at the old one.
  void relocate() {
    check();
    const Memory old = std::move(memory_);
    place_anew();
    std::memcpy(memory_.get() + kGuard, old.get() + kGuard, bytes_);
    std::memset(old.get(), kPoison, bytes_ + 2 * kGuard);
  }

  void poison() {
    check();
    std::memset(memory_.get() + kGuard, kPoison, bytes_);
  }

  void check() const {
    if (!memory_) return;
    for (std::size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(memory_.get()[i], kGuardByte) << "written before the slot";
      ASSERT_EQ(memory_.get()[kGuard + bytes_ + i], kGuardByte) << "written past the slot of " << bytes_ << " bytes";
    }
  }

 private:
  struct Free {
    void operator()(unsigned char* pointer) const { std::free(pointer); }
  };
  using Memory = std::unique_ptr<unsigned char, Free>;
  static constexpr std::size_t kGuard = 256;
  static constexpr int kPoison = 0xFF;  // every float of it is a NaN
  static constexpr unsigned char kGuardByte = 0xA5;

  void place_anew() {
    const std::size_t whole = bytes_ + 2 * kGuard;
    memory_.reset(static_cast<unsigned char*>(std::aligned_alloc(256, (whole + 255) / 256 * 256)));
    std::memset(memory_.get(), kGuardByte, whole);
    std::memset(memory_.get() + kGuard, kPoison, bytes_);
  }

  std::size_t bytes_ = 0;
  Memory memory_;
};

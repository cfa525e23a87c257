// A file mapped into memory for reading. If a file is cut off meanwhile (a copy that starts again, a sync tool), the
// system ends a program that reads past the new end; here such bytes read as zeros, and cut_off() says so.
#pragma once

#include <cstddef>
#include <span>

namespace train_gpt {

struct MappedPlace;

class MappedBytes {
 public:
  MappedBytes() = default;
  // The first `size` bytes of an open file, which may be closed afterwards. Throws std::system_error.
  MappedBytes(int descriptor, std::size_t size);
  ~MappedBytes();
  MappedBytes(MappedBytes&& other) noexcept;
  MappedBytes& operator=(MappedBytes&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  // Bytes before `end` need not stay in memory (pages before `begin` are already released); the system reads them again
  // on access.
  void forget(std::size_t begin, std::size_t end) const;
  // To be asked after reading: if true, bytes that were read may be zeros instead.
  bool cut_off() const;

 private:
  std::span<const std::byte> bytes_;
  MappedPlace* place_ = nullptr;  // for the signal handler
};

}  // namespace train_gpt

// The message between two units: a list of tensors with types and bytes, one buffer, every tensor at a multiple of 256
// bytes. N = B*T rows, C hidden.
//
//                                  forward                            backward
//   up to the first head shard     x(N,C)                             dx(N,C)
//   between two head shards        X(N,C) m(N) s(N) z(N) A(N,C)       dX(N,C) m(N) s(N)
//     in validation                X(N,C) m(N) s(N) z(N)
//     in generation                X(B,C) and the logits of one position, (B, columns of the shards before)
//
// x, dx, X and logits are at activation precision; A, dX and the vectors of rows are fp32 (see unit_head.h).
#pragma once

#include <array>
#include <cstdint>

#include "kernels/device.h"
#include "model/config.h"

namespace train_gpt {

struct BoundaryTensor {
  const char* name = "";
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t element = 0;  // bytes

  std::int64_t bytes() const { return (rows * columns * element + 255) / 256 * 256; }
};

// Small and without allocations: actions make one wherever they need it.
class Boundary {
 public:
  void add(const BoundaryTensor& tensor) { tensors_[static_cast<std::size_t>(count_++)] = tensor; }
  int count() const { return count_; }
  const BoundaryTensor& operator[](int i) const { return tensors_[static_cast<std::size_t>(i)]; }
  std::int64_t bytes() const { return offset(count_); }
  std::int64_t offset(int tensor) const {
    std::int64_t offset = 0;
    for (int i = 0; i < tensor; ++i) offset += (*this)[i].bytes();
    return offset;
  }

 private:
  std::array<BoundaryTensor, 5> tensors_;
  int count_ = 0;
};

// The purpose of a forward pass.
enum class ForwardUse : std::uint8_t { training, validation, generation };

struct BoundarySizes {
  std::int64_t B = 0, T = 0;
  Precision precision = Precision::fp32;
};
// Between units unit-1 and unit, 0 < unit < unit_count.
Boundary forward_boundary(const ModelConfig& model, const BoundarySizes& sizes, int unit, ForwardUse use);
Boundary backward_boundary(const ModelConfig& model, const BoundarySizes& sizes, int unit);

}  // namespace train_gpt

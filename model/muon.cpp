#include "model/muon.h"

#include <algorithm>
#include <cmath>

namespace train_gpt {
namespace {

constexpr float kLinear = 3.4445F, kCubic = -4.7750F, kQuintic = 2.0315F;
constexpr int kIterations = 5;

std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// The pieces of the scratch, one after the other.
struct Scratch {
  char* direction;  // X (rows,columns)
  char* product;    // (rows,columns)
  char* gram;       // A (side,side), side the shorter of rows and columns
  char* square;     // A A
  char* wide;       // X^T X in fp32, before rounding; without rounding A itself
  char* sums;       // of squares, a double per atom
  char* end;

  Scratch(void* begin, Precision precision, std::int64_t rows, std::int64_t columns) {
    const std::int64_t side = std::min(rows, columns);
    const bool rounds = rows > columns && precision != Precision::fp32;
    char* next = static_cast<char*>(begin);
    const auto take = [&](std::int64_t bytes) {
      char* piece = next;
      next += aligned(bytes);
      return piece;
    };
    direction = take(rows * columns * element_size(precision));
    product = take(rows * columns * element_size(precision));
    gram = take(side * side * element_size(precision));
    square = take(side * side * element_size(precision));
    wide = rounds ? take(side * side * std::int64_t{sizeof(float)}) : gram;
    sums = take((rows * columns + kAtomElements - 1) / kAtomElements * std::int64_t{sizeof(double)});
    end = next;
  }
};

// X = 3.4445 X + (-4.7750 A + 2.0315 A A) X; products with symmetric matrices use the form that reads rows.
void iterate(Device& device, const Scratch& scratch, std::int64_t rows, std::int64_t columns) {
  const bool tall = rows > columns;
  const std::int64_t side = std::min(rows, columns);
  if (tall) {
    auto* wide = reinterpret_cast<float*>(scratch.wide);
    device.matmul_first_backward_weight(wide, nullptr, scratch.direction, scratch.direction, rows, side, side);
    if (scratch.wide != scratch.gram) device.from_float(scratch.gram, wide, side * side);
  } else {
    device.matmul_forward(scratch.gram, scratch.direction, scratch.direction, nullptr, side, columns, side);
  }
  device.matmul_forward(scratch.square, scratch.gram, scratch.gram, nullptr, side, side, side);
  device.weighted_sum(scratch.square, kCubic, scratch.gram, kQuintic, scratch.square, side * side);
  if (tall) {
    device.matmul_forward(scratch.product, scratch.direction, scratch.square, nullptr, rows, side, side);
  } else {
    device.matmul_backward_input(scratch.product, scratch.square, scratch.direction, side, columns, side);
  }
  device.weighted_sum(scratch.direction, kLinear, scratch.direction, 1.0F, scratch.product, rows * columns);
}

}  // namespace

const char* to_string(MuonScale scale) { return scale == MuonScale::rms ? "rms" : "spectral"; }

float muon_scale(MuonScale scale, std::int64_t rows, std::int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  return static_cast<float>(scale == MuonScale::rms ? 0.2 * std::sqrt(std::max(r, c))
                                                    : std::sqrt(std::max(1.0, r / c)));
}

std::int64_t muon_scratch_bytes(Precision precision, std::int64_t rows, std::int64_t columns) {
  char begin = 0;
  return Scratch(&begin, precision, rows, columns).end - &begin;
}

std::int64_t muon_scratch_bytes(Precision precision, const ArenaLayout& layout) {
  std::int64_t bytes = 0;
  for (const ArenaLayout::Entry& entry : layout.entries) {
    if (entry.matrices.count > 0)
      bytes = std::max(bytes, muon_scratch_bytes(precision, entry.matrices.rows, entry.matrices.columns));
  }
  return bytes;
}

void* muon_direction(Device& device, const MuonMatrix& matrix, void* scratch) {
  const std::int64_t elements = matrix.rows * matrix.columns;
  const Scratch pieces(scratch, device.precision(), matrix.rows, matrix.columns);
  auto* sums = reinterpret_cast<double*>(pieces.sums);
  device.muon_squared_sums(sums, matrix.from, elements);
  device.muon_direction(pieces.direction, matrix.from, sums, elements);
  for (int i = 0; i < kIterations; ++i) iterate(device, pieces, matrix.rows, matrix.columns);
  return pieces.direction;
}

void muon_matrix_step(Device& device, const MuonMatrix& matrix, const MuonConstants& constants, void* scratch) {
  const void* direction = muon_direction(device, matrix, scratch);
  device.muon_update(matrix.new_values, matrix.low, matrix.values, direction, matrix.from.scalars,
                     constants.weight_decay, muon_scale(constants.scale, matrix.rows, matrix.columns),
                     matrix.rows * matrix.columns);
}

}  // namespace train_gpt

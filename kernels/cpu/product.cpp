#include "kernels/cpu/product.h"

#include <algorithm>
#include <array>

namespace train_gpt::cpu {
namespace {

// ---- memory that is needed next -------------------------------------------------------------------------------------

// Lines to fetch into the second-level cache while a tile is summed, four with every four steps of the depth: where the
// tile goes, and pieces of the factors that come next. Waiting for them would take up to a tenth of the time.
class Fetches {
 public:
  static constexpr std::int64_t kLine = 16;  // floats
  // Four lines, a stride apart. The last ones may lie beyond what was asked for: nothing is read.
  struct Group {
    const float* first;
    std::int64_t stride;
  };

  void clear() { size_ = 0; }
  // `rows` rows of `floats` numbers, of which at least the first is there.
  void add(const float* corner, std::int64_t stride, std::int64_t rows, std::int64_t floats) {
    for (std::int64_t line = 0; line < floats; line += kLine) {
      for (std::int64_t row = 0; row < rows && size_ < kMost; row += 4) {
        groups_[size_++] = {corner + row * stride + line, stride};
      }
    }
  }
  const Group* begin() const { return groups_; }
  const Group* end(std::int64_t depth) const { return groups_ + std::min(size_, depth / 4); }

 private:
  static constexpr std::int64_t kMost = kDepthBlock / 4;
  std::int64_t size_ = 0;
  Group groups_[kMost];
};

// ---- the sums of a tile, in registers -------------------------------------------------------------------------------

// out = start + bias + scale sums, for a whole tile.
template <std::int64_t Rows>
[[gnu::always_inline]] inline void write_tile(const Destination& to, const Vector (&sum)[Rows][kTileVectors]) {
  const Vector scale = broadcast(to.scale);
  const auto for_each = [&](const auto& start) {
#pragma GCC unroll 12
    for (std::int64_t i = 0; i < Rows; ++i) {
      for (std::int64_t v = 0; v < kTileVectors; ++v) {
        const std::int64_t at = i * to.stride + v * kVectorLanes;
        store(to.out + at, start(at, v, sum[i][v] * scale));
      }
    }
  };
  if (to.bias != nullptr) {
    Vector bias[kTileVectors];
    for (std::int64_t v = 0; v < kTileVectors; ++v) bias[v] = load(to.bias + v * kVectorLanes);
    if (to.start != nullptr)
      for_each([&](std::int64_t at, std::int64_t v, Vector value) { return (load(to.start + at) + bias[v]) + value; });
    else
      for_each([&](std::int64_t, std::int64_t v, Vector value) { return (Vector{} + bias[v]) + value; });
  } else if (to.start != nullptr) {
    for_each([&](std::int64_t at, std::int64_t, Vector value) { return load(to.start + at) + value; });
  } else {
    for_each([](std::int64_t, std::int64_t, Vector value) { return value; });
  }
}

// sums(Rows, kTileColumns) = left(Rows, depth) panel(depth, kTileColumns). A packed left factor is a column of
// kTileRows numbers per step of the depth, one in place a row per `stride`. Where `to` is not null and the tile has all
// of its rows, the sums go there instead.
//
// Where another machine's thread works on the same core, as on most rented ones, instructions are what is scarce: every
// second number of the left factor is an operand in memory of two multiply-adds (of more of them there would be too
// many loads), and four steps share the counting.
template <std::int64_t Rows, bool Packed>
[[gnu::noinline]] void sum_tile(float* sums, const Destination* to, const float* left, std::int64_t stride,
                                const float* panel, std::int64_t depth, const Fetches& fetches) {
  Vector sum[Rows][kTileVectors];
#pragma GCC unroll 12
  for (std::int64_t i = 0; i < Rows; ++i) {
    for (std::int64_t v = 0; v < kTileVectors; ++v) sum[i][v] = Vector{};
  }
  // Two rows by one pointer: few enough that all of them stay in registers.
  const float* rows[(Rows + 1) / 2];
#pragma GCC unroll 6
  for (std::int64_t i = 0; i < Rows; i += 2) rows[i / 2] = left + i * stride;
  const auto add_steps = [&]<std::int64_t Count>() {
#pragma GCC unroll 4
    for (std::int64_t step = 0; step < Count; ++step) {
      Vector right[kTileVectors];
      for (std::int64_t v = 0; v < kTileVectors; ++v) right[v] = load(panel + step * kTileColumns + v * kVectorLanes);
#pragma GCC unroll 12
      for (std::int64_t i = 0; i < Rows; ++i) {
        const float* number = Packed ? left + step * kTileRows + i : rows[i / 2] + i % 2 * stride + step;
        if (i % 2 == 0) {
          for (std::int64_t v = 0; v < kTileVectors; ++v) sum[i][v] = multiply_add_number(number, right[v], sum[i][v]);
        } else {
          const Vector element = broadcast(*number);
          for (std::int64_t v = 0; v < kTileVectors; ++v) sum[i][v] = multiply_add(element, right[v], sum[i][v]);
        }
      }
    }
    panel += Count * kTileColumns;
    left += Count * kTileRows;
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < Rows; i += 2) rows[i / 2] += Count;
  };
  const Fetches::Group* const end = fetches.end(depth);
  for (const Fetches::Group* group = fetches.begin(); group != end; ++group) {
#pragma GCC unroll 4
    for (std::int64_t line = 0; line < 4; ++line) __builtin_prefetch(group->first + line * group->stride, 0, 2);
    add_steps.template operator()<4>();
  }
  const std::int64_t rest = depth - (end - fetches.begin()) * 4;
  for (std::int64_t k = rest / 4; k > 0; --k) add_steps.template operator()<4>();
  for (std::int64_t k = rest % 4; k > 0; --k) add_steps.template operator()<1>();
  if (Rows == kTileRows && to != nullptr) return write_tile(*to, sum);
#pragma GCC unroll 12
  for (std::int64_t i = 0; i < Rows; ++i) {
    for (std::int64_t v = 0; v < kTileVectors; ++v) store(sums + i * kTileColumns + v * kVectorLanes, sum[i][v]);
  }
}

using SumTile = decltype(&sum_tile<1, false>);

template <bool Packed, std::size_t... Row>
constexpr std::array<SumTile, sizeof...(Row)> sum_tiles(std::index_sequence<Row...>) {
  return {sum_tile<static_cast<std::int64_t>(Row) + 1, Packed>...};
}
// By the number of rows, less 1: a tile at the lower edge takes no time for rows that are not there.
constexpr auto kSumInPlace = sum_tiles<false>(std::make_index_sequence<kTileRows>{});
constexpr auto kSumPacked = sum_tiles<true>(std::make_index_sequence<kTileRows>{});

// ---- packing --------------------------------------------------------------------------------------------------------

// The lanes from `lane` on of which `width` are there: all, some or none.
Vector load_up_to(const float* p, std::int64_t lanes) {
  return lanes >= kVectorLanes ? load(p) : (lanes <= 0 ? Vector{} : load(p, lanes));
}

// Panel after panel, panel(depth, kTileColumns) = its columns of right(depth, columns), then zeros. Row by row, so that
// memory is read in long pieces.
void pack_rows(float* panels, Factor right, std::int64_t columns, std::int64_t depth) {
  for (std::int64_t k = 0; k < depth; ++k) {
    const float* row = right.data + k * right.stride;
    for (std::int64_t j = 0; j < columns; j += kTileColumns) {
      float* to = panels + j * depth + k * kTileColumns;
      for (std::int64_t lane = 0; lane < kTileColumns; lane += kVectorLanes) {
        store(to + lane, load_up_to(row + j + lane, columns - j - lane));
      }
    }
  }
}

// The same from a factor whose columns lie along memory.
void pack_columns(float* panels, Factor right, std::int64_t columns, std::int64_t depth) {
  const std::int64_t padded = (columns + kTileColumns - 1) / kTileColumns * kTileColumns;
  for (std::int64_t j = 0; j < padded; j += kVectorLanes) {
    float* to = panels + j / kTileColumns * kTileColumns * depth + j % kTileColumns;
    for (std::int64_t k = 0; k < depth; k += kVectorLanes) {
      Vector square[kVectorLanes] = {};
      for (std::int64_t i = 0; i < std::min(kVectorLanes, columns - j); ++i) {
        square[i] = load_up_to(right.data + (j + i) * right.stride + k, depth - k);
      }
      transpose(square);
      for (std::int64_t i = 0; i < std::min(kVectorLanes, depth - k); ++i)
        store(to + (k + i) * kTileColumns, square[i]);
    }
  }
}

// Block after block, block(depth, kTileRows) = its rows of left(rows, depth), which is read transposed.
void pack_blocks(float* blocks, Factor left, std::int64_t rows, std::int64_t depth) {
  for (std::int64_t k = 0; k < depth; ++k) {
    const float* from = left.data + k * left.stride;
    for (std::int64_t i = 0; i < rows; i += kTileRows) {
      float* to = blocks + i * depth + k * kTileRows;
      if (rows - i >= kTileRows) {
        store(to, load(from + i, kTileRows), kTileRows);
      } else {
        std::copy(from + i, from + rows, to);
      }
    }
  }
}

// ---- from sums to the destination -----------------------------------------------------------------------------------

// turned(kTileColumns, kTileStride) = transpose of sums(rows, kTileColumns)
void turn(float* turned, const float* sums, std::int64_t rows) {
  for (std::int64_t i = 0; i < kTileStride; i += kVectorLanes) {
    for (std::int64_t j = 0; j < kTileColumns; j += kVectorLanes) {
      Vector square[kVectorLanes] = {};
      for (std::int64_t r = 0; r < std::min(kVectorLanes, rows - i); ++r)
        square[r] = load(sums + (i + r) * kTileColumns + j);
      transpose(square);
      for (std::int64_t c = 0; c < kVectorLanes; ++c) store(turned + (j + c) * kTileStride + i, square[c]);
    }
  }
}

// values(rows, columns) with `stride` between rows; `to` is at their upper left corner.
void write(const Destination& to, const float* values, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  const Vector scale = broadcast(to.scale);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; j += kVectorLanes) {
      const std::int64_t lanes = std::min(kVectorLanes, columns - j);
      const std::int64_t at = i * to.stride + j;
      const bool whole = lanes == kVectorLanes;
      Vector value = load(values + i * stride + j) * scale;
      if (to.start != nullptr || to.bias != nullptr) {
        Vector start{};
        if (to.start != nullptr) start = whole ? load(to.start + at) : load(to.start + at, lanes);
        if (to.bias != nullptr) start = start + (whole ? load(to.bias + j) : load(to.bias + j, lanes));
        value = start + value;
      }
      whole ? store(to.out + at, value) : store(to.out + at, value, lanes);
    }
  }
}

// ---- one block of the depth -----------------------------------------------------------------------------------------

// The pieces of a call's scratch.
struct Buffers {
  float *panels, *blocks, *sums, *turned;
  explicit Buffers(float* scratch)
      : panels(scratch),
        blocks(panels + kDepthBlock * kPackedColumns),
        sums(blocks + kDepthBlock * kPackedRows),
        turned(sums + kTileStride * kTileColumns) {}
};

// A block of rows of the left factor, ready for the kernel that reads it.
struct Block {
  SumTile sum;
  const float* data;
  std::int64_t stride;
};

// The block from row i on, packed together with the next ones where it is read transposed.
Block block_at(const Buffers& buffers, Factor left, std::int64_t i, std::int64_t rows, std::int64_t depth) {
  const auto height = static_cast<std::size_t>(std::min(kTileRows, rows - i) - 1);
  if (!left.transposed) return {kSumInPlace[height], left.at(i, 0), left.stride};
  const std::int64_t within = i % kPackedRows;
  if (within == 0) {
    pack_blocks(buffers.blocks, {left.at(i, 0), left.stride, true}, std::min(kPackedRows, rows - i), depth);
  }
  return {kSumPacked[height], buffers.blocks + within * depth, 0};
}

// Prefetches the parts of the factors that are needed next, shared out over the tiles at hand: half a column of cache
// lines with every tile.
class Ahead {
 public:
  // The columns of the right factor from `right` on, next to be packed; 0 columns: there are none, or they are here.
  Ahead(Factor left, Factor right, std::int64_t next_columns, std::int64_t rows, std::int64_t depth)
      : left_(left), right_(right), next_columns_(next_columns), rows_(rows), depth_(depth) {}

  // For the tile-th tile of all, which is the `across`-th of the block of rows from i on.
  void add_to(Fetches& fetches, std::int64_t tile, std::int64_t i, std::int64_t across) const {
    const std::int64_t half = depth_ / 2;
    if (tile / 2 * Fetches::kLine < next_columns_) {
      fetches.add(right_.at(tile % 2 * half, tile / 2 * Fetches::kLine), right_.stride, half, 1);
    } else if (left_.transposed) {
      add_packed_rows(fetches, i, across);
    } else if (i + kTileRows < rows_ && across < 2) {
      const std::int64_t height = std::min(kTileRows, rows_ - i - kTileRows);
      fetches.add(left_.at(i + kTileRows, across * half), left_.stride, height, half);
    }
  }

 private:
  // The rows that are packed next, if they are: every block of tiles takes its part of the depth.
  void add_packed_rows(Fetches& fetches, std::int64_t i, std::int64_t across) const {
    const std::int64_t next = i / kPackedRows * kPackedRows + kPackedRows;
    if (next >= rows_ || across * Fetches::kLine >= kPackedRows) return;
    const std::int64_t part = i % kPackedRows / kTileRows, parts = kPackedRows / kTileRows;
    const std::int64_t begin = depth_ * part / parts, end = depth_ * (part + 1) / parts;
    const std::int64_t row = next + across * Fetches::kLine;
    if (row < rows_) fetches.add(left_.at(row, begin), left_.stride, end - begin, 1);
  }

  Factor left_, right_;
  std::int64_t next_columns_, rows_, depth_;
};

// The terms and columns that a block of rows needs of a product. By groups of twelve rows, whatever the vectors' width,
// so that a sum of nothing but zeros has the same sign everywhere.
struct Extent {
  std::int64_t first_term, terms, columns;
};

Extent extent_of(const Triangle& triangle, std::int64_t row, std::int64_t columns, std::int64_t depth) {
  constexpr std::int64_t kGroup = 12;
  static_assert(kGroup % kTileRows == 0);
  const std::int64_t first = row / kGroup * kGroup, end = first + kGroup + triangle.diagonal;
  switch (triangle.kind) {
    case Triangle::Kind::wanted_below:
      return {0, depth, std::min(columns, end)};
    case Triangle::Kind::left_below:
      return {0, std::min(depth, end), columns};
    case Triangle::Kind::left_above: {
      const std::int64_t begin = std::clamp<std::int64_t>(first - triangle.diagonal, 0, depth);
      return {begin, depth - begin, columns};
    }
    case Triangle::Kind::none:
      break;
  }
  return {0, depth, columns};
}

// `turned`: what is computed is the transpose of what is wanted.
void multiply_columns(const Buffers& buffers, const Destination& to, bool turned, Factor left, Factor right,
                      const Ahead& ahead, const Triangle& triangle, std::int64_t rows, std::int64_t columns,
                      std::int64_t depth) {
  (right.transposed ? pack_columns : pack_rows)(buffers.panels, right, columns, depth);
  Fetches fetches;
  std::int64_t tile = 0;
  for (std::int64_t i = 0; i < rows; i += kTileRows) {
    const std::int64_t height = std::min(kTileRows, rows - i);
    const Block block = block_at(buffers, left, i, rows, depth);
    const Extent extent = extent_of(triangle, i, columns, depth);
    const float* const data = block.data + extent.first_term * (left.transposed ? kTileRows : 1);
    for (std::int64_t j = 0; j < extent.columns; j += kTileColumns, ++tile) {
      const std::int64_t width = std::min(kTileColumns, columns - j);
      const Destination corner_of_tile = turned ? corner(to, j, i) : corner(to, i, j);
      fetches.clear();
      fetches.add(corner_of_tile.out, to.stride, turned ? width : height, turned ? height : width);
      ahead.add_to(fetches, tile, i, j / kTileColumns);
      const bool whole = !turned && height == kTileRows && width == kTileColumns;
      block.sum(buffers.sums, whole ? &corner_of_tile : nullptr, data, block.stride,
                buffers.panels + j * depth + extent.first_term * kTileColumns, extent.terms, fetches);
      if (whole) continue;
      if (turned) {
        turn(buffers.turned, buffers.sums, height);
        write(corner_of_tile, buffers.turned, kTileStride, width, height);
      } else {
        write(corner_of_tile, buffers.sums, kTileColumns, height, width);
      }
    }
  }
}

// A product of few rows with the transpose of a matrix of weights is turned around, so that the weights need not be
// packed. Turning the sums back costs more than that for more rows, and where the depth is short.
constexpr std::int64_t kFewRows = 255, kShortDepth = 128;

void multiply_block(ThreadPool& pool, int worker, const Buffers& buffers, const Destination& to, Factor left,
                    Factor right, std::int64_t rows, std::int64_t columns, std::int64_t depth,
                    const Triangle& triangle) {
  const bool turned = right.transposed && !left.transposed && depth > kShortDepth && rows <= kFewRows;
  if (turned) {
    std::swap(left, right);
    std::swap(rows, columns);
    left.transposed = false;
    right.transposed = true;
  }
  // With a short depth more columns fit: a left factor that is packed is packed anew for each of these blocks.
  const std::int64_t packed = kDepthBlock * kPackedColumns / depth / kTileColumns * kTileColumns;
  const bool whole = !turned && columns <= packed;
  for (std::int64_t j = 0; j < columns; j += packed) {
    pool.progress(worker);
    const std::int64_t next = right.transposed ? 0 : std::min(packed, columns - j - packed);
    const Ahead ahead(left, {right.at(0, j + packed), right.stride, right.transposed}, next, rows, depth);
    multiply_columns(buffers, turned ? corner(to, j, 0) : corner(to, 0, j), turned, left,
                     {right.at(0, j), right.stride, right.transposed}, ahead, whole ? triangle : Triangle{}, rows,
                     std::min(packed, columns - j), depth);
  }
}

}  // namespace

void multiply(ThreadPool& pool, int worker, float* scratch, const Destination& to, Factor left, Factor right,
              std::int64_t rows, std::int64_t columns, std::int64_t depth, const Triangle& triangle) {
  const Buffers buffers(scratch);
  const std::int64_t blocks = (depth + kDepthBlock - 1) / kDepthBlock;
  const std::int64_t even = ((depth + blocks - 1) / blocks + 15) / 16 * 16;
  Destination block = to;
  for (std::int64_t k = 0; k < depth; k += even) {
    if (k > 0) {
      block.start = to.out;
      block.bias = nullptr;
    }
    multiply_block(pool, worker, buffers, block, {left.at(0, k), left.stride, left.transposed},
                   {right.at(k, 0), right.stride, right.transposed}, rows, columns, std::min(even, depth - k),
                   blocks == 1 ? triangle : Triangle{});
  }
}

}  // namespace train_gpt::cpu

#include "ptx.h"

#include <cmath>
#include <cstring>

#include "cp_async.h"
#include "report.h"
#include "shared_memory.h"

namespace emulator::ptx {
namespace {

float bf16(std::uint32_t half) {
  const std::uint32_t bits = half << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float tf32(std::uint32_t bits) {
  bits &= ~0x1FFFU;  // the low 13 bits do not count
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct Product {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

// The product of one warp, given how a lane's registers spread over A (16 x K) and B (K x 8). With group = lane / 4 and
// t = lane % 4, C and D hold (group, 2t), (group, 2t+1), (group+8, 2t), (group+8, 2t+1).
template <int K, class Unpack>
void multiply(void* const* arguments, Unpack unpack) {
  float a[16][K];
  float b[K][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto* product = static_cast<const Product*>(arguments[lane]);
    unpack(a, b, *product, lane / 4, lane % 4);
  }
  float sums[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const float* c = static_cast<const Product*>(arguments[lane])->d;
    for (int i = 0; i < 4; ++i) sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2] = c[i];
  }
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < K; ++k) {
      for (int n = 0; n < 8; ++n) sums[m][n] += a[m][k] * b[k][n];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float* d = static_cast<const Product*>(arguments[lane])->d;
    for (int i = 0; i < 4; ++i) d[i] = sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  }
}

// The .aligned forms need all 32 lanes at the same instruction.
void whole_warp(const char* name, void* arguments, WarpFunction run, Where where) {
  require_device_code(name, where);
  if (the_block.warp[current_thread->warp].lanes != ~0U) {
    fail("absent-lanes", std::string(name) + " at " + text(where) + " in a warp of fewer than 32 threads");
  }
  warp_operation(name, ~0U, arguments, run, where);
}

struct Load {
  std::uint32_t* registers;
  const char* row;
};

template <int kMatrices, bool kTranspose>
void load(void* const* arguments, unsigned) {
  std::uint16_t matrix[kMatrices][8][8];
  for (int lane = 0; lane < 8 * kMatrices; ++lane) {
    std::memcpy(matrix[lane / 8][lane % 8], static_cast<const Load*>(arguments[lane])->row, 16);
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int row = lane / 4;
    const int column = 2 * (lane % 4);
    for (int i = 0; i < kMatrices; ++i) {
      const std::uint32_t low = kTranspose ? matrix[i][column][row] : matrix[i][row][column];
      const std::uint32_t high = kTranspose ? matrix[i][column + 1][row] : matrix[i][row][column + 1];
      static_cast<const Load*>(arguments[lane])->registers[i] = low | high << 16;
    }
  }
}

template <int kMatrices, bool kTranspose>
void load_matrices(const char* name, std::uint32_t* registers, const void* row, Where where, const void* pc) {
  require_device_code(name, where);
  if (current_thread->lane < 8 * kMatrices) {
    current_thread->waits = name;  // only so that a report says where
    current_thread->where = where;
    require_shared_range(row, 16, name);
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
      fail("misaligned", std::string(name) + ": rows are aligned to 16 bytes");
    race::access(row, 16, race::Access::read, pc);
  }
  Load call{registers, static_cast<const char*>(row)};
  whole_warp(name, &call, load<kMatrices, kTranspose>, where);
}

}  // namespace

void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                       const char* emulator_file, int emulator_line) {
  Product call{d, a, b};
  const auto run = [](void* const* arguments, unsigned) {
    multiply<16>(arguments, [](float(&a_)[16][16], float(&b_)[16][8], const Product& p, int group, int t) {
      for (int i = 0; i < 8; ++i) {  // element i is half i % 2 of register i / 2
        a_[group + 8 * (i / 2 % 2)][2 * t + i % 2 + 8 * (i / 4)] = bf16(p.a[i / 2] >> 16 * (i % 2) & 0xFFFFU);
      }
      for (int i = 0; i < 4; ++i) b_[2 * t + i % 2 + 8 * (i / 2)][group] = bf16(p.b[i / 2] >> 16 * (i % 2) & 0xFFFFU);
    });
  };
  whole_warp("mma.m16n8k16.bf16", &call, run, EMULATOR_HERE);
}

void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                      const char* emulator_file, int emulator_line) {
  Product call{d, a, b};
  const auto run = [](void* const* arguments, unsigned) {
    multiply<8>(arguments, [](float(&a_)[16][8], float(&b_)[8][8], const Product& p, int group, int t) {
      for (int i = 0; i < 4; ++i) a_[group + 8 * (i % 2)][t + 4 * (i / 2)] = tf32(p.a[i]);
      for (int i = 0; i < 2; ++i) b_[t + 4 * i][group] = tf32(p.b[i]);
    });
  };
  whole_warp("mma.m16n8k8.tf32", &call, run, EMULATOR_HERE);
}

void mma_m16n8k4_tf32(float (&d)[4], const std::uint32_t (&a)[2], const std::uint32_t (&b)[1],
                      const char* emulator_file, int emulator_line) {
  Product call{d, a, b};
  const auto run = [](void* const* arguments, unsigned) {
    multiply<4>(arguments, [](float(&a_)[16][4], float(&b_)[4][8], const Product& p, int group, int t) {
      for (int i = 0; i < 2; ++i) a_[group + 8 * i][t] = tf32(p.a[i]);
      b_[t][group] = tf32(p.b[0]);
    });
  };
  whole_warp("mma.m16n8k4.tf32", &call, run, EMULATOR_HERE);
}

std::uint32_t to_tf32(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7F800000U) == 0x7F800000U) return bits;  // infinities and NaN stay
  return (bits + 0x1000U) & ~0x1FFFU;
}

#define EMULATOR_LDMATRIX(count, suffix, transpose)                                                                   \
  void ldmatrix_x##count##suffix(std::uint32_t(&r)[count], const void* row, const char* emulator_file,                \
                                 int emulator_line) {                                                                 \
    load_matrices<count, transpose>("ldmatrix.x" #count #suffix, r, row, EMULATOR_HERE, __builtin_return_address(0)); \
  }
EMULATOR_LDMATRIX(1, , false)
EMULATOR_LDMATRIX(2, , false)
EMULATOR_LDMATRIX(4, , false)
EMULATOR_LDMATRIX(1, _trans, true)
EMULATOR_LDMATRIX(2, _trans, true)
EMULATOR_LDMATRIX(4, _trans, true)

void cp_async_4(void* shared, const void* global, const char* emulator_file, int emulator_line) {
  cp_async_queue(shared, global, 4, 4, EMULATOR_HERE, __builtin_return_address(0));
}
void cp_async_8(void* shared, const void* global, const char* emulator_file, int emulator_line) {
  cp_async_queue(shared, global, 8, 8, EMULATOR_HERE, __builtin_return_address(0));
}
void cp_async_16(void* shared, const void* global, const char* emulator_file, int emulator_line) {
  cp_async_queue(shared, global, 16, 16, EMULATOR_HERE, __builtin_return_address(0));
}
void cp_async_16_zfill(void* shared, const void* global, int source_bytes, const char* emulator_file,
                       int emulator_line) {
  cp_async_queue(shared, global, 16, static_cast<std::size_t>(source_bytes), EMULATOR_HERE,
                 __builtin_return_address(0));
}
void cp_async_commit_group(const char* emulator_file, int emulator_line) {
  emulator::cp_async_commit_group(EMULATOR_HERE);
}
void cp_async_wait_all(const char* emulator_file, int emulator_line) { cp_async_wait_all_copies(EMULATOR_HERE); }
void wait_group(int pending_groups, Where where) { cp_async_wait(static_cast<unsigned>(pending_groups), where); }

float exp2_approximate(float x) { return std::exp2(x); }

}  // namespace emulator::ptx

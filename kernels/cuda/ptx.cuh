// The inline PTX of this project, all of it: tensor-core products, matrix loads from shared memory, asynchronous
// copies. Under nvcc these are the instructions; elsewhere the host emulator supplies twins of the same signatures, so
// that the kernels that use them run without a GPU. Nothing here needs more than sm_80.
//
// Reference: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions" (fragment layouts) and "cp.async".
#pragma once

#include <cstdint>

#if !defined(__CUDACC__)

#include "ptx.h"  // of the emulator

namespace train_gpt::ptx {
using emulator::ptx::cp_async_16;
using emulator::ptx::cp_async_16_zfill;
using emulator::ptx::cp_async_4;
using emulator::ptx::cp_async_8;
using emulator::ptx::cp_async_commit_group;
using emulator::ptx::cp_async_wait_all;
using emulator::ptx::cp_async_wait_group;
using emulator::ptx::exp2_approximate;
using emulator::ptx::ldmatrix_x1;
using emulator::ptx::ldmatrix_x1_trans;
using emulator::ptx::ldmatrix_x2;
using emulator::ptx::ldmatrix_x2_trans;
using emulator::ptx::ldmatrix_x4;
using emulator::ptx::ldmatrix_x4_trans;
using emulator::ptx::mma_m16n8k16_bf16;
using emulator::ptx::mma_m16n8k4_tf32;
using emulator::ptx::mma_m16n8k8_tf32;
using emulator::ptx::to_tf32;
inline void forget_value(int&) {}
}  // namespace train_gpt::ptx

#else

namespace train_gpt::ptx {

// The 32-bit address that PTX wants for shared memory.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// D += A B on one warp: A (16 x k, row), B (k x 8, column), D (16 x 8) fp32. With group = lane / 4 and t = lane % 4:
//   D: d[0..3] = (group, 2t) (group, 2t+1) (group+8, 2t) (group+8, 2t+1)
//   A, bf16, k = 16: a[0] = (group, 2t..2t+1), a[1] = (group+8, 2t..), a[2] = (group, 2t+8..), a[3] = (group+8, 2t+8..)
//   B, bf16, k = 16: b[0] = (2t..2t+1, group), b[1] = (2t+8..2t+9, group)
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A, tf32, k = 8: a[0..3] = (group, t) (group+8, t) (group, t+4) (group+8, t+4);  B: b[0..1] = (t, group) (t+4, group)
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A, tf32, k = 4: a[0..1] = (group, t) (group+8, t);  B: b[0] = (t, group)
__device__ __forceinline__ void mma_m16n8k4_tf32(float (&d)[4], const std::uint32_t (&a)[2],
                                                 const std::uint32_t (&b)[1]) {
  asm volatile("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}

// fp32 to tf32, ties away from zero.
__device__ __forceinline__ std::uint32_t to_tf32(float x) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// Loads 1, 2 or 4 matrices of 8 x 8 16-bit elements: lane 8 i + j gives the address of row j of matrix i (16 bytes,
// 16-byte aligned, in shared memory). Lane l receives elements (l / 4, 2 (l % 4)) and (.., +1) of matrix i in r[i],
// of the transposed matrix with _trans. Orders no memory: barriers stay the caller's business.
#define TRAIN_GPT_LDMATRIX_X1(name, modifier)                                       \
  __device__ __forceinline__ void name(std::uint32_t(&r)[1], const void* row) {     \
    asm volatile("ldmatrix.sync.aligned.m8n8.x1" modifier ".shared.b16 {%0}, [%1];" \
                 : "=r"(r[0])                                                       \
                 : "r"(shared_address(row))                                         \
                 : "memory");                                                       \
  }
#define TRAIN_GPT_LDMATRIX_X2(name, modifier)                                           \
  __device__ __forceinline__ void name(std::uint32_t(&r)[2], const void* row) {         \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" modifier ".shared.b16 {%0, %1}, [%2];" \
                 : "=r"(r[0]), "=r"(r[1])                                               \
                 : "r"(shared_address(row))                                             \
                 : "memory");                                                           \
  }
#define TRAIN_GPT_LDMATRIX_X4(name, modifier)                                                   \
  __device__ __forceinline__ void name(std::uint32_t(&r)[4], const void* row) {                 \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" modifier ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                               \
                 : "r"(shared_address(row))                                                     \
                 : "memory");                                                                   \
  }
TRAIN_GPT_LDMATRIX_X1(ldmatrix_x1, "")
TRAIN_GPT_LDMATRIX_X1(ldmatrix_x1_trans, ".trans")
TRAIN_GPT_LDMATRIX_X2(ldmatrix_x2, "")
TRAIN_GPT_LDMATRIX_X2(ldmatrix_x2_trans, ".trans")
TRAIN_GPT_LDMATRIX_X4(ldmatrix_x4, "")
TRAIN_GPT_LDMATRIX_X4(ldmatrix_x4_trans, ".trans")
#undef TRAIN_GPT_LDMATRIX_X1
#undef TRAIN_GPT_LDMATRIX_X2
#undef TRAIN_GPT_LDMATRIX_X4

// Asynchronous copies from global to shared memory, both addresses aligned to the size. The data is there for the
// calling thread after a wait, for other threads after a barrier that follows the wait.
__device__ __forceinline__ void cp_async_4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"(shared_address(shared)), "l"(global) : "memory");
}
__device__ __forceinline__ void cp_async_8(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" : : "r"(shared_address(shared)), "l"(global) : "memory");
}
// 16 bytes go past L1.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(shared_address(shared)), "l"(global) : "memory");
}
// Copies source_bytes (0 to 16) and fills the rest of the 16 with zeros; with 0 the global address is not read.
__device__ __forceinline__ void cp_async_16_zfill(void* shared, const void* global, int source_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(global), "r"(source_bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" : : : "memory"); }
// Waits until at most kPendingGroups of the groups committed by this thread are still under way.
template <int kPendingGroups>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPendingGroups) : "memory");
}
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" : : : "memory"); }

// From here on the compiler knows nothing about x: what follows from it is computed where it is used, again in each
// round of a loop, and holds no registers all the while.
__device__ __forceinline__ void forget_value(int& x) { asm volatile("" : "+r"(x)); }

// 2^x, relative error 2^-22, subnormals flushed to zero.
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace train_gpt::ptx

#endif

// Host twins of the PTX instructions that CUDA C++ has no function for. A project keeps its inline PTX in one header
// whose functions have these signatures, and brings these in by using-declarations when nvcc is not the compiler:
//
//   #if defined(__CUDACC__)
//   __device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) { asm volatile(..); }
//   #else
//   #include "ptx.h"                   // of the emulator
//   using emulator::ptx::ldmatrix_x4;  // so that the default arguments record the kernel's source line
//   #endif
//
// Fragment layouts are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16" and its neighbours.
#pragma once

#include <cstdint>

#include "warp.h"

namespace emulator::ptx {

// D += A B on one warp, fp32 accumulation. A is m x k (row), B is k x n (column), each a fragment of the calling lane.
// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: two bf16 per register.
void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], EMULATOR_WHERE);
// mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32: one fp32 per register, of which 10 mantissa bits count.
void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], EMULATOR_WHERE);
// mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32
void mma_m16n8k4_tf32(float (&d)[4], const std::uint32_t (&a)[2], const std::uint32_t (&b)[1], EMULATOR_WHERE);
// cvt.rna.tf32.f32: rounds to 10 mantissa bits, ties away from zero.
std::uint32_t to_tf32(float x);

// ldmatrix.sync.aligned.m8n8.xN[.trans].shared.b16: N matrices of 8 x 8 16-bit elements. Lane 8 i + j gives the address
// of row j of matrix i (16 bytes, 16-byte aligned); with x1 and x2 the addresses of the other lanes are not used.
void ldmatrix_x1(std::uint32_t (&r)[1], const void* row, EMULATOR_WHERE);
void ldmatrix_x2(std::uint32_t (&r)[2], const void* row, EMULATOR_WHERE);
void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, EMULATOR_WHERE);
void ldmatrix_x1_trans(std::uint32_t (&r)[1], const void* row, EMULATOR_WHERE);
void ldmatrix_x2_trans(std::uint32_t (&r)[2], const void* row, EMULATOR_WHERE);
void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row, EMULATOR_WHERE);

// cp.async.ca.shared.global (4, 8 bytes) and .cg (16 bytes); both addresses aligned to the size.
void cp_async_4(void* shared, const void* global, EMULATOR_WHERE);
void cp_async_8(void* shared, const void* global, EMULATOR_WHERE);
void cp_async_16(void* shared, const void* global, EMULATOR_WHERE);
// Copies `source_bytes` (0 to 16) and fills the rest with zeros; with 0 the global address is not read.
void cp_async_16_zfill(void* shared, const void* global, int source_bytes, EMULATOR_WHERE);
void cp_async_commit_group(EMULATOR_WHERE);
template <int kPendingGroups>
void cp_async_wait_group(EMULATOR_WHERE);
void cp_async_wait_all(EMULATOR_WHERE);

// ex2.approx.ftz.f32
float exp2_approximate(float x);

void wait_group(int pending_groups, Where where);
template <int kPendingGroups>
void cp_async_wait_group(const char* emulator_file, int emulator_line) {
  wait_group(kPendingGroups, EMULATOR_HERE);
}

}  // namespace emulator::ptx

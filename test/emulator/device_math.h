// Arithmetic of device code that the host's <math.h> lacks. The fast intrinsics are computed in full precision: what a
// GPU adds is error of a few units in the last place, which no test may depend on.
#pragma once

#include <math.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "report.h"

namespace emulator {

template <class To, class From>
inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float power(float x, float y) { return powf(x, y); }

}  // namespace emulator

// glibc declares some of these names with another linkage: macros go first.
#define __expf(x) (::expf(x))
#define __exp10f(x) (::exp10f(x))
#define __logf(x) (::logf(x))
#define __log2f(x) (::log2f(x))
#define __log10f(x) (::log10f(x))
#define __sinf(x) (::sinf(x))
#define __cosf(x) (::cosf(x))
#define __tanf(x) (::tanf(x))
#define __powf(x, y) (::emulator::power(x, y))
#if !defined(__clang__)
#define __builtin_assume(condition) static_cast<void>(0)
#endif

inline float rsqrtf(float x) { return 1.0F / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return 1.0F / cbrtf(x); }
inline float fdividef(float x, float y) { return x / y; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0F / sqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline float __saturatef(float x) { return x > 1 ? 1.0F : (x > 0 ? x : 0.0F); }
inline float normcdff(float x) { return 0.5F * erfcf(-x * 0.70710678118654752F); }
inline float sinpif(float x) { return sinf(3.14159265358979F * x); }
inline float cospif(float x) { return cosf(3.14159265358979F * x); }

inline int __float_as_int(float x) { return emulator::same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulator::same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return emulator::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::same_bits<double>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(rintf(x)); }
inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1U) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned x, unsigned y) { return static_cast<unsigned>(std::uint64_t{x} * y >> 32); }
inline int __mulhi(int x, int y) { return static_cast<int>(std::int64_t{x} * y >> 32); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}

// Loads and stores with cache hints.
#define EMULATOR_LOAD(name)   \
  template <class T>          \
  inline T name(const T* p) { \
    return *p;                \
  }
EMULATOR_LOAD(__ldg)
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldcv)
EMULATOR_LOAD(__ldlu)
#undef EMULATOR_LOAD
#define EMULATOR_STORE(name)        \
  template <class T>                \
  inline void name(T* p, T value) { \
    *p = value;                     \
  }
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stwt)
#undef EMULATOR_STORE

inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
[[noreturn]] inline void __trap() { emulator::fail("trap", "__trap()"); }

// min and max as device code has them, mixed signedness included.
#define EMULATOR_MIN_MAX(type, a, b)                               \
  inline type min(a x, b y) {                                      \
    const type p = static_cast<type>(x), q = static_cast<type>(y); \
    return p < q ? p : q;                                          \
  }                                                                \
  inline type max(a x, b y) {                                      \
    const type p = static_cast<type>(x), q = static_cast<type>(y); \
    return p > q ? p : q;                                          \
  }
EMULATOR_MIN_MAX(int, int, int)
EMULATOR_MIN_MAX(unsigned, unsigned, unsigned)
EMULATOR_MIN_MAX(unsigned, int, unsigned)
EMULATOR_MIN_MAX(unsigned, unsigned, int)
EMULATOR_MIN_MAX(long, long, long)
EMULATOR_MIN_MAX(unsigned long, unsigned long, unsigned long)
EMULATOR_MIN_MAX(long long, long long, long long)
EMULATOR_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
#undef EMULATOR_MIN_MAX
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }

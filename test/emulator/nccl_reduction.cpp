#include "nccl_reduction.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace emulator::nccl {
namespace {

// Arithmetic is done in the type itself, 16-bit floats in fp32.
float widened(__half x) { return __half2float(x); }
float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename T>
T widened(T x) {
  return x;
}
template <typename T, typename Wide>
T narrowed(Wide x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16(x);
  } else {
    return static_cast<T>(x);
  }
}

template <typename T>
constexpr bool kIsFloat = std::is_floating_point_v<T> || std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

template <typename T>
T scaled_for_average(T x, int ranks) {
  using Wide = decltype(widened(x));
  return narrowed<T>(static_cast<Wide>(widened(x) * (static_cast<Wide>(1) / static_cast<Wide>(ranks))));
}

template <typename T>
T combined(T x, T y, ncclRedOp_t operation) {
  const auto a = widened(x), b = widened(y);
  using Wide = std::remove_const_t<decltype(a)>;
  switch (operation) {
    case ncclProd:
      return narrowed<T>(static_cast<Wide>(a * b));
    case ncclMax:
      return narrowed<T>(std::max(a, b));
    case ncclMin:
      return narrowed<T>(std::min(a, b));
    default:
      return narrowed<T>(static_cast<Wide>(a + b));
  }
}

// Buffers are bytes of messages: elements are copied in and out.
template <typename T>
void for_each_pair(void* accumulator, const void* contribution, std::size_t n, auto&& step) {
  auto* to = static_cast<char*>(accumulator);
  const auto* from = static_cast<const char*>(contribution);
  for (std::size_t i = 0; i < n; ++i) {
    T x, y;
    std::memcpy(&x, to + i * sizeof(T), sizeof(T));
    std::memcpy(&y, from + i * sizeof(T), sizeof(T));
    x = step(x, y);
    std::memcpy(to + i * sizeof(T), &x, sizeof(T));
  }
}

template <typename Body>
void with_type(ncclDataType_t type, Body&& body) {
  switch (type) {
    case ncclInt8:
      return body.template operator()<std::int8_t>();
    case ncclUint8:
      return body.template operator()<std::uint8_t>();
    case ncclInt32:
      return body.template operator()<std::int32_t>();
    case ncclUint32:
      return body.template operator()<std::uint32_t>();
    case ncclInt64:
      return body.template operator()<std::int64_t>();
    case ncclUint64:
      return body.template operator()<std::uint64_t>();
    case ncclFloat16:
      return body.template operator()<__half>();
    case ncclFloat32:
      return body.template operator()<float>();
    case ncclFloat64:
      return body.template operator()<double>();
    case ncclBfloat16:
      return body.template operator()<__nv_bfloat16>();
    default:
      return;
  }
}

}  // namespace

std::size_t nccl_element_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

std::string nccl_type_name(ncclDataType_t type) {
  constexpr const char* kNames[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                    "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return nccl_element_bytes(type) == 0 ? "ncclDataType_t " + std::to_string(static_cast<int>(type)) : kNames[type];
}

std::string nccl_reduction_name(ncclRedOp_t operation) {
  constexpr const char* kNames[] = {"sum", "prod", "max", "min", "avg"};
  return operation >= 0 && operation < ncclNumOps ? kNames[operation]
                                                  : "ncclRedOp_t " + std::to_string(static_cast<int>(operation));
}

bool is_reducible(ncclDataType_t type) {
  return nccl_element_bytes(type) != 0 && type != ncclFloat8e4m3 && type != ncclFloat8e5m2;
}

void start_reduction(void* accumulator, const void* contribution, std::size_t n, ncclDataType_t type,
                     ncclRedOp_t operation, int ranks) {
  with_type(type, [&]<typename T>() {
    for_each_pair<T>(accumulator, contribution, n, [&](T, T y) {
      if constexpr (kIsFloat<T>) {
        if (operation == ncclAvg) return scaled_for_average(y, ranks);
      }
      return y;
    });
  });
}

void reduce(void* accumulator, const void* contribution, std::size_t n, ncclDataType_t type, ncclRedOp_t operation,
            int ranks) {
  with_type(type, [&]<typename T>() {
    for_each_pair<T>(accumulator, contribution, n, [&](T x, T y) {
      if constexpr (kIsFloat<T>) {
        if (operation == ncclAvg) return combined(x, scaled_for_average(y, ranks), ncclSum);
      }
      return combined(x, y, operation);
    });
  });
}

void finish_reduction(void* accumulator, std::size_t n, ncclDataType_t type, ncclRedOp_t operation, int ranks) {
  if (operation != ncclAvg) return;
  with_type(type, [&]<typename T>() {
    if constexpr (!kIsFloat<T>) {
      for_each_pair<T>(accumulator, accumulator, n, [&](T x, T) { return static_cast<T>(x / static_cast<T>(ranks)); });
    }
  });
}

}  // namespace emulator::nccl

// One launch for several tensors: a table among the kernel's parameters says which tensor a block works on. (4 KiB of
// parameters is what every CUDA takes.)
#pragma once

#include <span>
#include <stdexcept>

#include "kernels/cuda/check.h"
#include "kernels/cuda/packs.cuh"
#include "kernels/device.h"

namespace train_gpt::cuda {

// Entry has `elements`.
template <typename Entry>
struct TensorTable {
  int count = 0;
  unsigned first_block[kTensorsAtOnce + 1];  // of each tensor, then of what follows the last
  Entry entry[kTensorsAtOnce];

  // The tensor of a block, by bisection.
  __device__ __forceinline__ int tensor_of(unsigned block) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_block[middle] <= block) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};
static_assert(sizeof(TensorTable<Device::Addition>) + 256 <= 4096);

template <typename Entry>
TensorTable<Entry> tensor_table(std::span<const Entry> tensors, std::int64_t elements_per_block) {
  if (tensors.size() > kTensorsAtOnce) throw std::logic_error("more tensors than one call takes");
  TensorTable<Entry> table;
  table.first_block[0] = 0;
  for (const Entry& entry : tensors) {
    table.entry[table.count] = entry;
    table.first_block[table.count + 1] =
        table.first_block[table.count] + blocks_for(entry.elements, elements_per_block);
    ++table.count;
  }
  return table;
}

inline constexpr int kTensorThreads = 256;
inline constexpr int kTensorPack = 4;

// Operation: void operator()(const Entry&, std::int64_t i, int count) const, for the elements i .. i + count - 1 of a
// tensor; count is kTensorPack but at the end.
template <typename Operation, typename Entry>
__global__ void __launch_bounds__(kTensorThreads) tensors_kernel(Operation operation, TensorTable<Entry> table) {
  const int t = table.tensor_of(blockIdx.x);
  const std::int64_t i = (std::int64_t{blockIdx.x - table.first_block[t]} * kTensorThreads + threadIdx.x) * kTensorPack;
  const std::int64_t left = table.entry[t].elements - i;
  if (left > 0) operation(table.entry[t], i, left < kTensorPack ? static_cast<int>(left) : kTensorPack);
}

template <typename Operation, typename Entry>
void for_all_tensors(const Operation& operation, std::span<const Entry> tensors, cudaStream_t stream) {
  const TensorTable<Entry> table = tensor_table(tensors, kTensorThreads * kTensorPack);
  const unsigned blocks = table.first_block[table.count];
  if (blocks == 0) return;
  tensors_kernel<Operation, Entry><<<blocks, kTensorThreads, 0, stream>>>(operation, table);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace train_gpt::cuda

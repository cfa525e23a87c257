// C = A B on tensor cores: bf16 inputs, fp32 accumulation, tiles of 32 x 32 x 32 fetched by cp.async into two buffers,
// fragments by ldmatrix. Four warps, each 16 x 16 of the tile. Against a product in double of the same rounded inputs.
#include <cuda_bf16.h>

#include "check.cuh"
#include "tensor_core.cuh"

using bf16 = __nv_bfloat16;
constexpr int kTile = 32;
constexpr int kPitch = kTile + 8;  // 80 bytes: rows of ldmatrix fall into different banks

struct Tiles {
  bf16 a[2][kTile][kPitch];
  bf16 b[2][kTile][kPitch];
};

// Starts fetching one 32 x 32 tile: 128 threads, 16 bytes each.
__device__ void fetch(bf16 (&tile)[kTile][kPitch], const bf16* from, int pitch) {
  const int row = threadIdx.x / 4;
  const int column = 8 * (threadIdx.x % 4);
  cp_async_16(&tile[row][column], from + row * pitch + column);
}

// c: (m, n), a: (m, k), b: (k, n), row-major, all multiples of 32.
__global__ void __launch_bounds__(128) multiply(float* c, const bf16* a, const bf16* b, int n, int k) {
  extern __shared__ __align__(16) unsigned char memory[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(memory);
  const int row = blockIdx.y * kTile;
  const int column = blockIdx.x * kTile;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int warp_row = 16 * (warp / 2);
  const int warp_column = 16 * (warp % 2);
  float sums[2][4] = {};

  fetch(tiles.a[0], a + row * k, k);
  fetch(tiles.b[0], b + column, n);
  cp_async_commit_group();
  for (int step = 0; step < k / kTile; ++step) {
    const int now = step % 2;
    const int next = (step + 1) * kTile;
    if (next < k) {
      fetch(tiles.a[1 - now], a + row * k + next, k);
      fetch(tiles.b[1 - now], b + next * n + column, n);
    }
    cp_async_commit_group();
    cp_async_wait_group<1>();
    __syncthreads();
    for (int inner = 0; inner < kTile; inner += 16) {
      std::uint32_t fragment_a[4];
      ldmatrix_x4(fragment_a, &tiles.a[now][warp_row + lane % 16][inner + 8 * (lane / 16)]);
      for (int half = 0; half < 2; ++half) {
        std::uint32_t fragment_b[2];
        ldmatrix_x2_trans(fragment_b, &tiles.b[now][inner + lane % 16][warp_column + 8 * half]);
        mma_m16n8k16_bf16(sums[half], fragment_a, fragment_b);
      }
    }
    __syncthreads();
  }
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) {
      const int r = row + warp_row + lane / 4 + 8 * (i / 2);
      c[r * n + column + warp_column + 8 * half + 2 * (lane % 4) + i % 2] = sums[half][i];
    }
  }
}

int main() {
  const int m = 64, n = 96, k = 128;
  const auto rounded = [](std::size_t size, unsigned seed) {
    std::vector<bf16> values;
    for (const float value : random_values(size, seed)) values.push_back(__float2bfloat16(value));
    return values;
  };
  const std::vector<bf16> a = rounded(static_cast<std::size_t>(m) * k, 1);
  const std::vector<bf16> b = rounded(static_cast<std::size_t>(k) * n, 2);
  DeviceArray<bf16> device_a(a), device_b(b);
  DeviceArray<float> c(static_cast<std::size_t>(m) * n);
  CHECK(cudaFuncSetAttribute(multiply, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(Tiles))));
  multiply<<<dim3(n / kTile, m / kTile), 128, sizeof(Tiles)>>>(c.data, device_a.data, device_b.data, n, k);
  CHECK(cudaGetLastError());
  const std::vector<float> got = c.host();
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double expected = 0;
      for (int l = 0; l < k; ++l) {
        expected += double{__bfloat162float(a[i * k + l])} * __bfloat162float(b[l * n + j]);
      }
      demand_close(got[i * n + j], expected, 1e-5, "c", static_cast<std::size_t>(i) * n + j);
    }
  }
  std::printf("tiled product: right\n");
}

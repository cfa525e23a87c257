// Variance of each row in one block (mean first, then squared distances), then the sum over all rows by the block that
// finishes last (atomic counter and __threadfence), against sums in double.
#include "check.cuh"

constexpr int kThreads = 256;

__device__ float block_sum(float value) {
  __shared__ float partial[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  __syncthreads();  // the buffer may still be read from the call before
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  for (float part : partial) total += part;
  return total;
}

// variances: (rows), total: (1), in: (rows, columns), finished: (1), 0 before.
__global__ void __launch_bounds__(kThreads)
    row_variance(float* variances, float* total, unsigned* finished, const float* in, int columns) {
  const float* row = in + blockIdx.x * columns;
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i];
  const float mean = block_sum(sum) / columns;
  float squares = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
  const float variance = block_sum(squares) / columns;
  __shared__ bool last;
  if (threadIdx.x == 0) {
    variances[blockIdx.x] = variance;
    __threadfence();
    last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  float all = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) all += variances[i];
  all = block_sum(all);
  if (threadIdx.x == 0) *total = all;
}

int main() {
  for (const int columns : {1, 63, 256, 1000}) {
    const int rows = 37;
    const std::vector<float> in = random_values(static_cast<std::size_t>(rows) * columns, 1);
    DeviceArray<float> device_in(in), variances(rows), total(1);
    DeviceArray<unsigned> finished(std::vector<unsigned>{0});
    row_variance<<<rows, kThreads>>>(variances.data, total.data, finished.data, device_in.data, columns);
    CHECK(cudaGetLastError());
    double expected_total = 0;
    const std::vector<float> got = variances.host();
    for (int row = 0; row < rows; ++row) {
      double mean = 0;
      for (int i = 0; i < columns; ++i) mean += in[row * columns + i] / static_cast<double>(columns);
      double expected = 0;
      for (int i = 0; i < columns; ++i) {
        const double distance = in[row * columns + i] - mean;
        expected += distance * distance / columns;
      }
      demand_close(got[row], expected, 1e-6, "variances", row);
      expected_total += expected;
    }
    demand_close(total.host()[0], expected_total, 1e-6, "total", 0);
  }
  std::printf("reduction: right\n");
}

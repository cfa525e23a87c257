#include <cstdio>
#include <vector>
template <int N>
__global__ void __launch_bounds__(256) reduce(float* out, const float* in, int n) {
  __shared__ float partial[N / 32], unused;
  extern __shared__ __align__(16) unsigned char dynamic[];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += in[i + blockIdx.x * n];
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    unused = 0;
    for (int w = 0; w < N / 32; ++w) unused += partial[w];
    out[blockIdx.x] = unused;
    dynamic[3] = 1;
  }
}
int main() {
  float *in, *out;
  const int n = 1000, rows = 3;
  cudaMalloc(&in, rows * n * sizeof(float));
  cudaMalloc(&out, rows * sizeof(float));
  std::vector<float> host(rows * n, 1.f);
  cudaMemcpy(in, host.data(), host.size() * 4, cudaMemcpyHostToDevice);
  reduce<256><<<rows, 256, 64>>>(out, in, n);
  float got[rows];
  cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
  printf("%f %f %f\n", got[0], got[1], got[2]);
}

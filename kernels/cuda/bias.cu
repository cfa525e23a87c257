// Gradient of a bias: dbias(OC) += column sums of dout(N,OC), where cuBLASLt does not fuse it into the product that
// gives the weight's gradient (matmul.cpp).
//
// Bytes: e N OC, and 1/64 of it (fp32 partial sums of 256 rows, out and in); N OC FLOPs. Bound by memory: N = 8192, OC
// = 3072, bf16 is 50 MB: 15 us on an H100 (3.35 TB/s), 10 us on an H200 (4.8 TB/s), 25 us on an A100 (2.0 TB/s).
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/operation_parts.h"

namespace train_gpt::cuda {
namespace {

template <typename Float>
struct BiasTerms {
  const Float* dout;
  std::int64_t OC;

  template <int kWidth>
  __device__ void operator()(std::int64_t row, std::int64_t column, float (&values)[1][kWidth]) const {
    load<kWidth>(values[0], dout + row * OC + column);
  }
};

}  // namespace

std::int64_t bias_backward_scratch_bytes(std::int64_t N, std::int64_t OC) {
  return column_sums_scratch_bytes(1, N, OC);
}

template <typename Float>
void bias_backward(float* dbias, const Float* dout, std::int64_t N, std::int64_t OC, float* scratch,
                   cudaStream_t stream) {
  const BiasTerms<Float> terms{dout, OC};
  const ColumnResults<1> result{{dbias}};
  constexpr int kWidth = kWide<Float>;
  if (OC % kWidth == 0) {
    add_column_sums<1, kWidth>(result, N, OC, terms, scratch, stream);
  } else {
    add_column_sums<1, 1>(result, N, OC, terms, scratch, stream);
  }
}

template void bias_backward<float>(float*, const float*, std::int64_t, std::int64_t, float*, cudaStream_t);
template void bias_backward<bf16>(float*, const bf16*, std::int64_t, std::int64_t, float*, cudaStream_t);

}  // namespace train_gpt::cuda

#include <cblas.h>

#include "kernels/cpu/tiles.h"

namespace train_gpt::cpu {
namespace {

constexpr int kOpenMpBuild = 2;

}  // namespace

// OpenBLAS's pthread build has one setting for the process. Its OpenMP build follows the calling thread's OpenMP
// setting, which a new thread takes from the environment: there every thread has to say it.
void use_one_blas_thread() {
  static const bool process = (openblas_set_num_threads(1), true);
  (void)process;
  if (openblas_get_parallel() == kOpenMpBuild) {
    thread_local const bool thread = (openblas_set_num_threads(1), true);
    (void)thread;
  }
}

void gemm(float* out, std::int64_t out_stride, Factor left, Factor right, std::int64_t rows, std::int64_t columns,
          std::int64_t depth, float scale, bool accumulate) {
  use_one_blas_thread();
  cblas_sgemm(CblasRowMajor, left.transposed ? CblasTrans : CblasNoTrans, right.transposed ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(rows), static_cast<blasint>(columns), static_cast<blasint>(depth), scale, left.data,
              static_cast<blasint>(left.stride), right.data, static_cast<blasint>(right.stride),
              accumulate ? 1.0F : 0.0F, out, static_cast<blasint>(out_stride));
}

}  // namespace train_gpt::cpu

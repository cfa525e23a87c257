// For the cases that run under mpirun: this rank, its device, communicators of all ranks, device memory, and checks
// that end the job.
#pragma once

#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace emulator::nccl {

#define REQUIRE(condition)                                                                            \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      std::fprintf(stderr, "rank %d: %s:%d: not true: %s\n", rank(), __FILE__, __LINE__, #condition); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                   \
    }                                                                                                 \
  } while (false)
#define CUDA(call) REQUIRE((call) == cudaSuccess)
#define NCCL(call) REQUIRE((call) == ncclSuccess)
#define MPI(call) REQUIRE((call) == MPI_SUCCESS)

int rank();
int ranks();

// One of all ranks (or of `members`, in their order, which must hold this rank).
ncclComm_t make_communicator(ncclConfig_t* config = nullptr);
ncclComm_t make_communicator(const std::vector<int>& members);
cudaStream_t make_stream();

// n elements of device memory.
template <typename T>
class Device {
 public:
  explicit Device(std::size_t n) : n_(n) {
    CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), n == 0 ? 1 : n * sizeof(T)));
  }
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    if (n_ != 0) CUDA(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  Device(std::size_t n, T value) : Device(std::vector<T>(n, value)) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { cudaFree(data_); }
  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(n_);
    if (n_ != 0) CUDA(cudaMemcpy(values.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t n_;
  T* data_ = nullptr;
};

// The contribution of rank r: reproducible, not exactly summable, so that the order of sums shows.
std::vector<float> contribution(int r, std::size_t n, std::uint32_t salt = 0);

struct Case {
  const char* name;
  void (*run)();
};
std::span<const Case> transfer_cases();
std::span<const Case> communicator_cases();
std::span<const Case> separate_cases();  // most of them faulty: they end the job with a report

}  // namespace emulator::nccl

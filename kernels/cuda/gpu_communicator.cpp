#include "kernels/cuda/gpu_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_device.h"
#if !defined(TRAIN_GPT_WITHOUT_NCCL)
#include "kernels/cuda/nccl_communicator.h"
#endif
#include "kernels/cuda/staged_communicator.h"

namespace train_gpt {
namespace {

// Host and bus address: the number of a GPU depends on CUDA_VISIBLE_DEVICES, which may differ between ranks.
std::string current_gpu() {
  int gpu = 0;
  CUDA_CHECK(cudaGetDevice(&gpu));
  char bus[64] = "";
  CUDA_CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, gpu));
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return std::string(host) + " " + bus;
}

// The largest number of ranks on one GPU, the same on all ranks.
int most_ranks_per_gpu(Communicator& host) {
  const std::string mine = current_gpu();
  double most = 0;
  std::vector<std::string> gpus;
  for (const std::vector<char>& gpu : host.gather_host(mine, 0)) gpus.emplace_back(gpu.begin(), gpu.end());
  for (const std::string& gpu : gpus) {
    most = std::max(most, static_cast<double>(std::count(gpus.begin(), gpus.end(), gpu)));
  }
  host.broadcast_host(&most, sizeof most, 0);
  return static_cast<int>(most);
}

}  // namespace

void prepare_cuda_environment() { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0); }

bool is_cuda(const Device& device) { return cuda::is_cuda(device); }

GpuCommunicator make_gpu_communicator(std::unique_ptr<Communicator> host, const Device& device) {
  const int ranks = most_ranks_per_gpu(*host);
  std::string notice;
  if (ranks > 1) {
    notice = "up to " + std::to_string(ranks) + " ranks share a GPU, which NCCL refuses";
  } else {
#if defined(TRAIN_GPT_WITHOUT_NCCL)
    if (host->size() > 1) notice = "this program was built without NCCL";
#else
    return {.communicator = make_nccl_communicator(std::move(host), device), .notice = ""};
#endif
  }
  if (!notice.empty()) notice += ": messages go through host memory and MPI, slower than between GPUs";
  return {.communicator = make_staged_communicator(std::move(host), device), .notice = notice};
}

void check_gpus_can_be_shared(int ranks_here, int gpus) {
  if (ranks_here <= gpus) return;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    int mode = cudaComputeModeDefault;
    CUDA_CHECK(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, gpu));
    if (mode == cudaComputeModeDefault) continue;
    throw std::invalid_argument(std::to_string(ranks_here) + " ranks on a host with " + std::to_string(gpus) +
                                " visible GPU" + (gpus == 1 ? "" : "s") + ", and GPU " + std::to_string(gpu) +
                                " admits one process only (compute mode): start at most " + std::to_string(gpus) +
                                " ranks per host, or allow sharing with nvidia-smi -c DEFAULT");
  }
}

}  // namespace train_gpt

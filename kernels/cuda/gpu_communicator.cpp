#include "kernels/cuda/gpu_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "kernels/cuda/check.h"
#include "kernels/cuda/compute_stream.h"
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

// How the ranks of `host` spread over GPUs, the same on all ranks.
struct Sharing {
  int gpus = 0;        // different ones
  int most_ranks = 0;  // on one GPU
};
Sharing sharing(Communicator& host) {
  const std::string mine = current_gpu();
  std::map<std::string, int> ranks;  // by GPU
  for (const std::vector<char>& gpu : host.gather_host(mine, 0)) ++ranks[std::string(gpu.begin(), gpu.end())];
  Sharing result{.gpus = static_cast<int>(ranks.size())};
  for (const auto& [gpu, count] : ranks) result.most_ranks = std::max(result.most_ranks, count);
  host.broadcast_host(&result, sizeof result, 0);
  return result;
}

}  // namespace

bool is_cuda(const Device& device) { return cuda::is_cuda(device); }

GpuCommunicator make_gpu_communicator(std::unique_ptr<Communicator> host, const Device& device) {
  const auto [gpus, ranks] = sharing(*host);
  std::string notice;
  if (ranks > 1) {
    notice = "up to " + std::to_string(ranks) + " ranks share a GPU, which NCCL refuses";
  } else {
#if defined(TRAIN_GPT_WITHOUT_NCCL)
    if (host->size() > 1) notice = "this program was built without NCCL";
#else
    return {.communicator = make_nccl_communicator(std::move(host), device),
            .gpus = gpus,
            .most_ranks = ranks,
            .notice = ""};
#endif
  }
  if (!notice.empty()) notice += ": messages go through host memory and MPI, slower than between GPUs";
  return {.communicator = make_staged_communicator(std::move(host), device),
          .gpus = gpus,
          .most_ranks = ranks,
          .notice = notice};
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

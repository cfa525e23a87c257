#include "kernels/cuda/nccl_link.h"

#include <exception>
#include <stdexcept>
#include <utility>

namespace train_gpt::cuda {

void check(ncclResult_t result, ncclComm_t communicator, const std::string& what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = ncclGetLastError(communicator);
  throw std::runtime_error("NCCL: " + what + ": " + ncclGetErrorString(result) +
                           (last != nullptr && *last != '\0' ? std::string(" (") + last + ")" : std::string()));
}

NcclLink::NcclLink(const ncclUniqueId& id, int rank, int size, int largest_ctas, cudaStream_t compute, std::string name)
    : side_(compute), name_(std::move(name)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 1;
  config.maxCTAs = largest_ctas;
  check(ncclCommInitRankConfig(&communicator_, size, id, rank, &config), nullptr, "creating " + name_);
}

// While an exception ends the rank, the peers may be gone: nothing may wait for them.
NcclLink::~NcclLink() {
  if (std::uncaught_exceptions() > 0) {
    ncclCommAbort(communicator_);
  } else {
    ncclCommDestroy(communicator_);
  }
}

void NcclLink::check_failure() const {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(communicator_, &state), communicator_, name_);
  check(state, communicator_, name_);
}

}  // namespace train_gpt::cuda

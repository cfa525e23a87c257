#include "nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "counters.h"
#include "nccl_refusal.h"

namespace emulator::nccl {
namespace {

std::vector<ncclComm_t>& communicators() {
  static std::vector<ncclComm_t> all;
  return all;
}

bool is_unset(int value) { return value == NCCL_CONFIG_UNDEF_INT; }

std::string out_of_range(const char* field, int value, const std::string& right) {
  return std::string(field) + " is " + std::to_string(value) + "; right would be " + right;
}

Hello hello_of(std::uint64_t key0, std::uint64_t key1, int expected, int rank) {
  Hello hello;
  hello.key[0] = key0;
  hello.key[1] = key1;
  hello.expected = expected;
  hello.rank = rank;
  hello.order = rank;
  hello.world_rank = world_rank();
  std::snprintf(hello.gpu, sizeof hello.gpu, "%s", gpu_identity().c_str());
  return hello;
}

ncclComm_t new_communicator(int collecting_rank, const Hello& hello, const ncclConfig_t* config) {
  auto* communicator = new ncclComm;
  cudaGetDevice(&communicator->device);
  if (config != nullptr) {
    communicator->blocking = config->blocking != 0;
    if (config->maxCTAs != NCCL_CONFIG_UNDEF_INT) communicator->ctas = config->maxCTAs;
    if (config->commName != nullptr) communicator->name = config->commName;
  }
  communicator->meeting = std::make_unique<Meeting>(collecting_rank, hello);
  communicators().push_back(communicator);
  return communicator;
}

}  // namespace

std::string gpu_identity() {
  int device = 0;
  cudaGetDevice(&device);
  char bus[32] = "";
  cudaDeviceGetPCIBusId(bus, sizeof bus, device);
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  const char* named = std::getenv("EMULATOR_HOST");
  return std::string(named != nullptr ? named : host) + ":GPU " + bus;
}

std::string check_config(const ncclConfig_t& config) {
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  if (config.size != initial.size || config.magic != initial.magic || config.version != initial.version) {
    return "the configuration was not initialised with NCCL_CONFIG_INITIALIZER";
  }
  if (!is_unset(config.blocking) && config.blocking != 0 && config.blocking != 1) {
    return out_of_range("blocking", config.blocking, "0 or 1");
  }
  if (!is_unset(config.cgaClusterSize) && (config.cgaClusterSize < 0 || config.cgaClusterSize > 8)) {
    return out_of_range("cgaClusterSize", config.cgaClusterSize, "0 to 8");
  }
  for (const auto& [field, value] : {std::pair{"minCTAs", config.minCTAs}, std::pair{"maxCTAs", config.maxCTAs}}) {
    if (!is_unset(value) && (value < 1 || value > 64)) return out_of_range(field, value, "1 to 64");
  }
  if (!is_unset(config.minCTAs) && !is_unset(config.maxCTAs) && config.minCTAs > config.maxCTAs) {
    return out_of_range("minCTAs", config.minCTAs, "at most maxCTAs");
  }
  for (const auto& [field, value] :
       {std::pair{"splitShare", config.splitShare}, std::pair{"shrinkShare", config.shrinkShare},
        std::pair{"collnetEnable", config.collnetEnable}}) {
    if (!is_unset(value) && value != 0 && value != 1) return out_of_range(field, value, "0 or 1");
  }
  return "";
}

ncclComm_t begin_communicator(const ncclUniqueId& id, int ranks, int rank, const ncclConfig_t* config) {
  std::uint64_t words[2];
  std::memcpy(words, id.internal, sizeof words);
  return new_communicator(static_cast<int>(words[0]), hello_of(words[0], words[1], ranks, rank), config);
}

ncclComm_t begin_split(ncclComm& parent, int color, int key, const ncclConfig_t* config) {
  constexpr std::uint64_t kSplit = std::uint64_t{1} << 63;  // apart from unique ids
  Hello hello =
      hello_of(kSplit | static_cast<std::uint64_t>(parent.context), parent.splits++, parent.size(), parent.rank);
  hello.color = color;
  hello.order = key;
  ncclComm_t communicator = new_communicator(parent.world_ranks[0], hello, config);
  if (config == nullptr) communicator->blocking = parent.blocking;
  return communicator;
}

bool advance_creation(ncclComm& communicator) {
  if (communicator.state != CommunicatorState::creating) return true;
  if (!communicator.meeting->done()) return false;
  const Meeting& meeting = *communicator.meeting;
  if (!meeting.error.empty()) {
    communicator.state = CommunicatorState::failed;
    communicator.asynchronous_error = refuse(ncclInvalidUsage, "the creation of a communicator", meeting.error);
    return true;
  }
  communicator.context = meeting.context;
  communicator.rank = meeting.rank;
  communicator.world_ranks = meeting.world_ranks;
  if (communicator.name.empty()) communicator.name = "communicator " + std::to_string(meeting.context);
  const auto size = static_cast<std::size_t>(communicator.size());
  communicator.connected_as_sender.assign(size, false);
  communicator.connected_as_receiver.assign(size, false);
  communicator.state = CommunicatorState::ready;
  if (communicator.rank >= 0) ++counters().communicators_created;
  return true;
}

const std::vector<ncclComm_t>& live_communicators() { return communicators(); }

bool is_live(const ncclComm* communicator) {
  return std::find(communicators().begin(), communicators().end(), communicator) != communicators().end();
}

void forget(ncclComm* communicator) {
  std::erase(communicators(), communicator);
  delete communicator;
}

}  // namespace emulator::nccl

std::string ncclComm::describe() const {
  return name + ", rank " + std::to_string(rank) + " of " + std::to_string(size());
}

// mpirun -n N nccl_cases CASE..: runs cases by name ("all": those that are to succeed), one after the other.
#include <cstring>

#include "test/emulator/tests/nccl_world.h"

namespace emulator::nccl {

int rank() {
  int r = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &r);
  return r;
}

int ranks() {
  int n = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}

ncclComm_t make_communicator(ncclConfig_t* config) {
  ncclUniqueId id{};
  if (rank() == 0) NCCL(ncclGetUniqueId(&id));
  MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
  ncclComm_t communicator = nullptr;
  NCCL(ncclCommInitRankConfig(&communicator, ranks(), id, rank(), config));
  return communicator;
}

ncclComm_t make_communicator(const std::vector<int>& members) {
  constexpr int kTag = 99;
  ncclUniqueId id{};
  if (members[0] == rank()) {
    NCCL(ncclGetUniqueId(&id));
    for (std::size_t i = 1; i < members.size(); ++i)
      MPI(MPI_Send(&id, sizeof id, MPI_BYTE, members[i], kTag, MPI_COMM_WORLD));
  } else {
    MPI(MPI_Recv(&id, sizeof id, MPI_BYTE, members[0], kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  int mine = 0;
  while (members[static_cast<std::size_t>(mine)] != rank()) ++mine;
  ncclComm_t communicator = nullptr;
  NCCL(ncclCommInitRank(&communicator, static_cast<int>(members.size()), id, mine));
  return communicator;
}

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

std::vector<float> contribution(int r, std::size_t n, std::uint32_t salt) {
  std::vector<float> values(n);
  std::uint32_t state = (static_cast<std::uint32_t>(r) * 977U + salt) * 2654435761U + 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) / static_cast<float>(1 << 20) - 7.3F;
  }
  return values;
}

}  // namespace emulator::nccl

int main(int argc, char** argv) {
  using namespace emulator::nccl;
  MPI_Init(&argc, &argv);
  CUDA(cudaSetDevice(std::getenv("ONE_GPU_FOR_ALL") != nullptr ? 0 : rank()));
  for (int i = 1; i < argc; ++i) {
    bool found = false;
    for (const auto& cases : {transfer_cases(), communicator_cases(), separate_cases()}) {
      const bool succeeds = cases.data() != separate_cases().data();
      for (const Case& one : cases) {
        if (std::strcmp(argv[i], one.name) != 0 && !(succeeds && std::strcmp(argv[i], "all") == 0)) continue;
        found = true;
        one.run();
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank() == 0) std::printf("passed %s\n", one.name);
      }
    }
    REQUIRE(found);
  }
  MPI_Finalize();
  return 0;
}

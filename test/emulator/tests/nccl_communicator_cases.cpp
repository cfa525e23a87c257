// Communicators: split, configuration, creation in groups and without blocking, abort, counting.
#include <cmath>

#include "test/emulator/counters.h"
#include "test/emulator/tests/nccl_world.h"

namespace emulator::nccl {
namespace {

int size_of(ncclComm_t communicator) {
  int size = 0;
  NCCL(ncclCommCount(communicator, &size));
  return size;
}

int rank_in(ncclComm_t communicator) {
  int r = 0;
  NCCL(ncclCommUserRank(communicator, &r));
  return r;
}

// The ranks of MPI_COMM_WORLD that are in it, by an all-gather.
std::vector<int> members_of(ncclComm_t communicator) {
  Device<std::int32_t> mine(std::vector<std::int32_t>{rank()}), all(static_cast<std::size_t>(size_of(communicator)));
  NCCL(ncclAllGather(mine.data(), all.data(), 1, ncclInt32, communicator, nullptr));
  CUDA(cudaDeviceSynchronize());
  return all.read();
}

void split() {
  ncclComm_t world = make_communicator();
  int device = -1;
  NCCL(ncclCommCuDevice(world, &device));
  REQUIRE(device == rank());
  // Even and odd ranks, in falling order.
  ncclComm_t half = nullptr;
  NCCL(ncclCommSplit(world, rank() % 2, -rank(), &half, nullptr));
  REQUIRE(size_of(half) == ranks() / 2);
  std::vector<int> expected;
  for (int r = ranks() - 1; r >= 0; --r) {
    if (r % 2 == rank() % 2) expected.push_back(r);
  }
  REQUIRE(members_of(half) == expected);
  REQUIRE(expected[static_cast<std::size_t>(rank_in(half))] == rank());
  // The last rank stays out; a second split of the same parent is another one.
  ncclComm_t most = nullptr;
  NCCL(ncclCommSplit(world, rank() + 1 < ranks() ? 0 : NCCL_SPLIT_NOCOLOR, 0, &most, nullptr));
  REQUIRE((most == nullptr) == (rank() + 1 == ranks()));
  if (most != nullptr) REQUIRE(static_cast<int>(members_of(most).size()) == ranks() - 1);
  REQUIRE(static_cast<int>(members_of(world).size()) == ranks());  // the parent is as it was
  if (most != nullptr) NCCL(ncclCommDestroy(most));
  NCCL(ncclCommFinalize(half));
  NCCL(ncclCommDestroy(half));
  NCCL(ncclCommDestroy(world));
}

// Creation blocks the host, so two communicators must be created in one order everywhere; a group lifts that.
void grouped_creation_in_any_order() {
  ncclUniqueId ids[2] = {};
  if (rank() == 0) {
    NCCL(ncclGetUniqueId(&ids[0]));
    NCCL(ncclGetUniqueId(&ids[1]));
  }
  MPI(MPI_Bcast(ids, sizeof ids, MPI_BYTE, 0, MPI_COMM_WORLD));
  ncclComm_t both[2] = {};
  NCCL(ncclGroupStart());
  for (int i = 0; i < 2; ++i) {
    const int which = rank() % 2 == 0 ? i : 1 - i;
    NCCL(ncclCommInitRank(&both[which], ranks(), ids[which], which == 0 ? rank() : ranks() - 1 - rank()));
  }
  NCCL(ncclGroupEnd());
  REQUIRE(members_of(both[0])[0] == 0);
  REQUIRE(members_of(both[1])[0] == ranks() - 1);
  NCCL(ncclCommDestroy(both[0]));
  NCCL(ncclCommDestroy(both[1]));
}

ncclResult_t state_of(ncclComm_t communicator) {
  ncclResult_t state = ncclSuccess;
  NCCL(ncclCommGetAsyncError(communicator, &state));
  return state;
}

void without_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = 2;
  config.commName = "polled";
  ncclUniqueId id{};
  if (rank() == 0) NCCL(ncclGetUniqueId(&id));
  MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
  ncclComm_t world = nullptr;
  REQUIRE(ncclCommInitRankConfig(&world, ranks(), id, rank(), &config) == ncclInProgress);
  while (state_of(world) == ncclInProgress) {
  }
  REQUIRE(state_of(world) == ncclSuccess);
  Device<float> data(std::vector<float>{1.0F});
  const ncclResult_t launched = ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclSum, world, nullptr);
  REQUIRE(launched == ncclSuccess || launched == ncclInProgress);
  while (state_of(world) == ncclInProgress) {
  }
  CUDA(cudaDeviceSynchronize());
  REQUIRE(data.read()[0] == static_cast<float>(ranks()));
  const ncclResult_t finalized = ncclCommFinalize(world);
  REQUIRE(finalized == ncclSuccess || finalized == ncclInProgress);
  while (state_of(world) == ncclInProgress) {
  }
  NCCL(ncclCommDestroy(world));
}

void abort_lets_the_stream_go_on() {
  ncclComm_t world = make_communicator();
  cudaStream_t stream = make_stream();
  Device<float> out(3, 1.0F), in(3);
  const int partner = rank() ^ 1;
  const auto exchange = [&] {  // connects, so that the receive below does not block the host
    NCCL(ncclGroupStart());
    NCCL(ncclSend(out.data(), 3, ncclFloat32, partner, world, stream));
    Device<float> other(3);
    NCCL(ncclRecv(other.data(), 3, ncclFloat32, partner, world, stream));
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(stream));
  };
  exchange();
  MPI(MPI_Barrier(MPI_COMM_WORLD));
  NCCL(ncclRecv(in.data(), 3, ncclFloat32, partner, world, stream));  // nobody sends
  REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
  NCCL(ncclCommAbort(world));
  CUDA(cudaStreamSynchronize(stream));
  REQUIRE(std::isnan(in.read()[0]));
  CUDA(cudaStreamDestroy(stream));
}

void creations_are_counted() {
  const std::int64_t before = counters().communicators_created;
  ncclComm_t world = make_communicator();
  ncclComm_t half = nullptr;
  NCCL(ncclCommSplit(world, rank() % 2, 0, &half, nullptr));
  REQUIRE(counters().communicators_created == before + 2);
  members_of(world);
  REQUIRE(counters().communicators_created == before + 2);
  NCCL(ncclCommDestroy(half));
  NCCL(ncclCommDestroy(world));
}

constexpr Case kCases[] = {{"split", split},
                           {"grouped_creation_in_any_order", grouped_creation_in_any_order},
                           {"without_blocking", without_blocking},
                           {"abort_lets_the_stream_go_on", abort_lets_the_stream_go_on},
                           {"creations_are_counted", creations_are_counted}};

}  // namespace

std::span<const Case> communicator_cases() { return kCases; }

}  // namespace emulator::nccl

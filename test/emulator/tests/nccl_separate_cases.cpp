// Programs with one fault each, and what else needs a job of its own. nccl_test.cpp starts the jobs and looks for the
// reports.
#include <cmath>
#include <cstring>

#include "test/emulator/tests/nccl_world.h"

namespace emulator::nccl {
namespace {

void send_and_receive(std::size_t sent, std::size_t received, ncclDataType_t received_type) {
  ncclComm_t world = make_communicator();
  Device<float> buffer(64, 1.0F);
  if (rank() == 0) NCCL(ncclSend(buffer.data(), sent, ncclFloat32, 1, world, nullptr));
  if (rank() == 1) NCCL(ncclRecv(buffer.data(), received, received_type, 0, world, nullptr));
  CUDA(cudaDeviceSynchronize());
}

void mismatched_count() { send_and_receive(10, 12, ncclFloat32); }
void mismatched_type() { send_and_receive(10, 10, ncclInt32); }

void mismatched_reduction() {
  ncclComm_t world = make_communicator();
  Device<float> buffer(64, 1.0F);
  NCCL(ncclAllReduce(buffer.data(), buffer.data(), 8, ncclFloat32, rank() == 0 ? ncclMax : ncclSum, world, nullptr));
  CUDA(cudaDeviceSynchronize());
}

void mismatched_collective() {
  ncclComm_t world = make_communicator();
  Device<float> buffer(64, 1.0F);
  if (rank() == 0) {
    NCCL(ncclBroadcast(buffer.data(), buffer.data(), 8, ncclFloat32, 0, world, nullptr));
  } else {
    NCCL(ncclAllReduce(buffer.data(), buffer.data(), 8, ncclFloat32, ncclSum, world, nullptr));
  }
  CUDA(cudaDeviceSynchronize());
}

// So that later sends and receives do not block the host.
void connect(ncclComm_t world, Device<float>& out, Device<float>& in, int partner) {
  NCCL(ncclGroupStart());
  NCCL(ncclSend(out.data(), 1, ncclFloat32, partner, world, nullptr));
  NCCL(ncclRecv(in.data(), 1, ncclFloat32, partner, world, nullptr));
  NCCL(ncclGroupEnd());
  CUDA(cudaDeviceSynchronize());
}

// Both partners send first and are not in a group: nobody receives.
void deadlock_of_sends() {
  ncclComm_t world = make_communicator();
  Device<float> out(16, 1.0F), in(16);
  const int partner = rank() ^ 1;
  connect(world, out, in, partner);
  NCCL(ncclSend(out.data(), 16, ncclFloat32, partner, world, nullptr));
  NCCL(ncclRecv(in.data(), 16, ncclFloat32, partner, world, nullptr));
  CUDA(cudaDeviceSynchronize());
}

// Two communicators on one stream each way round: each rank's first kernel waits for the other's second.
void deadlock_of_two_communicators() {
  ncclComm_t a = make_communicator(), b = make_communicator();
  cudaStream_t stream = make_stream();
  Device<float> data(4, 1.0F);
  for (ncclComm_t communicator : {a, b})
    NCCL(ncclAllReduce(data.data(), data.data(), 4, ncclFloat32, ncclSum, communicator, stream));
  CUDA(cudaDeviceSynchronize());
  if (rank() == 0) std::swap(a, b);
  for (ncclComm_t communicator : {a, b})
    NCCL(ncclAllReduce(data.data(), data.data(), 4, ncclFloat32, ncclSum, communicator, stream));
  CUDA(cudaDeviceSynchronize());
}

// The same with fresh communicators: the hosts already block in connecting.
void deadlock_of_first_uses() {
  ncclComm_t a = make_communicator(), b = make_communicator();
  Device<float> data(4, 1.0F);
  cudaStream_t streams[] = {make_stream(), make_stream()};
  if (rank() == 0) std::swap(a, b);
  int i = 0;
  for (ncclComm_t communicator : {a, b}) {
    NCCL(ncclAllReduce(data.data(), data.data(), 4, ncclFloat32, ncclSum, communicator, streams[i++]));
  }
  CUDA(cudaDeviceSynchronize());
}

// NCCL may connect for it, while a sum is on its way.
void sum_of_another_size_behind_a_sum() {
  ncclComm_t communicator = make_communicator();
  Device<float> data(1024, 1.0F);
  cudaStream_t stream = make_stream();
  const auto sum = [&](std::size_t count) {
    NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, communicator, stream));
  };
  sum(4);
  CUDA(cudaDeviceSynchronize());
  sum(4);
  sum(1024);
  CUDA(cudaDeviceSynchronize());
}

void deadlock_with_host() {
  ncclComm_t world = make_communicator();
  Device<float> out(16, 1.0F), in(16);
  connect(world, out, in, rank() ^ 1);
  if (rank() == 1) {
    NCCL(ncclRecv(in.data(), 16, ncclFloat32, 0, world, nullptr));
    CUDA(cudaDeviceSynchronize());
  }
  MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void deadlock_of_creation() {
  ncclUniqueId id{};
  if (rank() == 0) NCCL(ncclGetUniqueId(&id));
  MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
  ncclComm_t world = nullptr;
  if (rank() != 1) NCCL(ncclCommInitRank(&world, ranks(), id, rank()));
  MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// A program that forgets to wait never gets the data by luck, but NaN while nothing has arrived.
void early_reader_sees_nan() {
  ncclComm_t world = make_communicator();
  cudaStream_t stream = make_stream(), other = make_stream();
  Device<float> first(4), in(4), copy(4);
  const auto transfer = [&](Device<float>& buffer) {
    if (rank() == 0) NCCL(ncclRecv(buffer.data(), 4, ncclFloat32, 1, world, stream));
    if (rank() == 1) CUDA(cudaMemsetAsync(buffer.data(), 0, 4 * sizeof(float), stream));
    if (rank() == 1) NCCL(ncclSend(buffer.data(), 4, ncclFloat32, 0, world, stream));
  };
  transfer(first);  // connects
  CUDA(cudaDeviceSynchronize());
  if (rank() == 1) MPI(MPI_Recv(nullptr, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  transfer(in);
  if (rank() == 0) {
    CUDA(cudaMemcpyAsync(copy.data(), in.data(), 4 * sizeof(float), cudaMemcpyDeviceToDevice, other));  // no event
    CUDA(cudaStreamSynchronize(other));
    REQUIRE(std::isnan(copy.read()[0]));
    MPI(MPI_Send(nullptr, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
  }
  CUDA(cudaDeviceSynchronize());
  if (rank() == 0) REQUIRE(in.read() == std::vector<float>(4, 0.0F));
  NCCL(ncclCommDestroy(world));
  CUDA(cudaStreamDestroy(stream));
  CUDA(cudaStreamDestroy(other));
}

void changed_send_buffer() {
  ncclComm_t world = make_communicator();
  cudaStream_t stream = make_stream(), other = make_stream();
  Device<float> buffer(16, 1.0F), in(16);
  connect(world, buffer, in, rank() ^ 1);
  if (rank() == 0) {
    CUDA(cudaMemset(buffer.data(), 0, 16 * sizeof(float)));
    NCCL(ncclSend(buffer.data(), 16, ncclFloat32, 1, world, stream));
    while (cudaStreamQuery(stream) == cudaErrorNotReady && cudaStreamQuery(other) != cudaSuccess) {
    }
    CUDA(cudaMemsetAsync(buffer.data(), 1, 16 * sizeof(float), other));  // no event
    CUDA(cudaStreamSynchronize(other));
    MPI(MPI_Send(nullptr, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
  } else if (rank() == 1) {
    MPI(MPI_Recv(nullptr, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    NCCL(ncclRecv(buffer.data(), 16, ncclFloat32, 0, world, stream));
  }
  CUDA(cudaDeviceSynchronize());
  MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void changed_receive_buffer() {
  ncclComm_t world = make_communicator();
  cudaStream_t stream = make_stream(), other = make_stream();
  Device<float> buffer(16, 1.0F), in(16);
  connect(world, buffer, in, rank() ^ 1);
  if (rank() == 0) {
    NCCL(ncclRecv(buffer.data(), 16, ncclFloat32, 1, world, stream));
    REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
    CUDA(cudaMemsetAsync(buffer.data(), 1, 16 * sizeof(float), other));  // no event
    CUDA(cudaStreamSynchronize(other));
    MPI(MPI_Send(nullptr, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
  } else if (rank() == 1) {
    MPI(MPI_Recv(nullptr, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    NCCL(ncclSend(buffer.data(), 16, ncclFloat32, 0, world, stream));
  }
  CUDA(cudaDeviceSynchronize());
  MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void buffer_too_small() {
  ncclComm_t world = make_communicator();
  Device<float> buffer(16, 1.0F);
  NCCL(ncclAllReduce(buffer.data(), buffer.data(), 17, ncclFloat32, ncclSum, world, nullptr));
}

bool last_error_says(const char* text) { return std::strstr(ncclGetLastError(nullptr), text) != nullptr; }

void refused_arguments() {
  ncclComm_t world = make_communicator();
  Device<float> buffer(64, 1.0F);
  float* data = buffer.data();
  REQUIRE(ncclSend(data, 1, ncclFloat32, ranks(), world, nullptr) == ncclInvalidArgument &&
          last_error_says("is not in"));
  REQUIRE(ncclSend(nullptr, 1, ncclFloat32, 0, world, nullptr) == ncclInvalidArgument &&
          last_error_says("a buffer is null"));
  REQUIRE(ncclSend(data, 1, ncclNumTypes, 0, world, nullptr) == ncclInvalidArgument && last_error_says("no such type"));
  REQUIRE(ncclAllReduce(data, data, 1, ncclFloat32, ncclNumOps, world, nullptr) == ncclInvalidArgument);
  REQUIRE(ncclAllReduce(data, data, 1, ncclFloat8e4m3, ncclSum, world, nullptr) == ncclInvalidUsage);
  REQUIRE(ncclAllReduce(data, data + 1, 8, ncclFloat32, ncclSum, world, nullptr) == ncclInvalidArgument &&
          last_error_says("overlap"));
  REQUIRE(ncclGroupEnd() == ncclInvalidUsage && last_error_says("no ncclGroupStart"));
  NCCL(ncclGroupStart());
  REQUIRE(ncclSend(data, 1, ncclFloat32, -1, world, nullptr) == ncclInvalidArgument);
  NCCL(ncclSend(data, 1, ncclFloat32, 0, world, nullptr));
  REQUIRE(ncclGroupEnd() == ncclInvalidArgument);  // and nothing of the group was launched
  CUDA(cudaDeviceSynchronize());
  ncclComm_t other = nullptr;
  ncclUniqueId id{};
  REQUIRE(ncclCommInitRank(&other, 2, id, 2) == ncclInvalidArgument);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 8;
  config.maxCTAs = 4;
  REQUIRE(ncclCommInitRankConfig(&other, 2, id, 0, &config) == ncclInvalidArgument && last_error_says("minCTAs"));
  ncclConfig_t empty{};
  REQUIRE(ncclCommInitRankConfig(&other, 2, id, 0, &empty) == ncclInvalidArgument &&
          last_error_says("NCCL_CONFIG_INITIALIZER"));
  NCCL(ncclCommDestroy(world));
  REQUIRE(ncclSend(data, 1, ncclFloat32, 0, world, nullptr) == ncclInvalidArgument && last_error_says("destroyed"));
}

void refused_duplicate_gpu() {
  ncclUniqueId id{};
  if (rank() == 0) NCCL(ncclGetUniqueId(&id));
  MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
  ncclComm_t world = nullptr;
  REQUIRE(ncclCommInitRank(&world, ranks(), id, rank()) == ncclInvalidUsage);
  REQUIRE(last_error_says("Duplicate GPU detected"));
  NCCL(ncclCommDestroy(world));
}

// More ranks than cores, all waiting for one that works: nobody is stuck, whatever the watch's limit.
void a_slow_rank_is_no_deadlock() {
  ncclComm_t world = make_communicator();
  Device<float> data(std::vector<float>{1.0F});
  NCCL(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclSum, world, nullptr));
  CUDA(cudaDeviceSynchronize());
  if (rank() == 0) {
    const timespec longer_than_the_watch{1, 0};
    nanosleep(&longer_than_the_watch, nullptr);
  }
  NCCL(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclMax, world, nullptr));
  CUDA(cudaDeviceSynchronize());
  REQUIRE(data.read()[0] == static_cast<float>(ranks()));
  NCCL(ncclCommDestroy(world));
}

constexpr Case kCases[] = {{"mismatched_count", mismatched_count},
                           {"mismatched_type", mismatched_type},
                           {"mismatched_reduction", mismatched_reduction},
                           {"mismatched_collective", mismatched_collective},
                           {"deadlock_of_sends", deadlock_of_sends},
                           {"deadlock_of_two_communicators", deadlock_of_two_communicators},
                           {"deadlock_of_first_uses", deadlock_of_first_uses},
                           {"sum_of_another_size_behind_a_sum", sum_of_another_size_behind_a_sum},
                           {"deadlock_with_host", deadlock_with_host},
                           {"deadlock_of_creation", deadlock_of_creation},
                           {"early_reader_sees_nan", early_reader_sees_nan},
                           {"changed_send_buffer", changed_send_buffer},
                           {"changed_receive_buffer", changed_receive_buffer},
                           {"buffer_too_small", buffer_too_small},
                           {"a_slow_rank_is_no_deadlock", a_slow_rank_is_no_deadlock},
                           {"refused_arguments", refused_arguments},
                           {"refused_duplicate_gpu", refused_duplicate_gpu}};

}  // namespace

std::span<const Case> separate_cases() { return kCases; }

}  // namespace emulator::nccl

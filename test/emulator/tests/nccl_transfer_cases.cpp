// Data that arrives: collectives, rings, groups, crossed communicators and streams.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>

#include "test/emulator/tests/nccl_world.h"

namespace emulator::nccl {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 7, 1000};

float combine(float a, float b, ncclRedOp_t operation) {
  switch (operation) {
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    case ncclProd:
      return a * b;
    default:
      return a + b;
  }
}

// In order of rank, each step rounded to fp32: every bit is asked for.
std::vector<float> reduced(std::size_t n, ncclRedOp_t operation, std::uint32_t salt = 0) {
  std::vector<float> sum;
  for (int r = 0; r < ranks(); ++r) {
    std::vector<float> values = contribution(r, n, salt);
    if (operation == ncclAvg) {
      for (float& value : values) value *= 1.0F / static_cast<float>(ranks());
    }
    if (r == 0) sum = values;
    for (std::size_t i = 0; r != 0 && i < n; ++i) sum[i] = combine(sum[i], values[i], operation);
  }
  return sum;
}

void all_reduce() {
  ncclComm_t world = make_communicator();
  cudaStream_t stream = make_stream();
  for (const std::size_t n : kCounts) {
    for (const ncclRedOp_t operation : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      Device<float> in(contribution(rank(), n)), out(n);
      NCCL(ncclAllReduce(in.data(), out.data(), n, ncclFloat32, operation, world, stream));
      NCCL(ncclAllReduce(in.data(), in.data(), n, ncclFloat32, operation, world, stream));
      CUDA(cudaStreamSynchronize(stream));
      REQUIRE(out.read() == reduced(n, operation));
      REQUIRE(in.read() == reduced(n, operation));
    }
  }
  NCCL(ncclCommDestroy(world));
  CUDA(cudaStreamDestroy(stream));
}

void all_reduce_of_other_types() {
  ncclComm_t world = make_communicator();
  constexpr std::size_t kN = 13;
  std::vector<std::int64_t> integers(kN);
  std::vector<__nv_bfloat16> halves(kN);
  for (std::size_t i = 0; i < kN; ++i) {
    integers[i] = (static_cast<std::int64_t>(rank()) << 40) + static_cast<std::int64_t>(i);
    halves[i] = __float2bfloat16(contribution(rank(), kN)[i]);
  }
  Device<std::int64_t> a(integers);
  Device<__nv_bfloat16> b(halves);
  NCCL(ncclAllReduce(a.data(), a.data(), kN, ncclInt64, ncclSum, world, nullptr));
  NCCL(ncclAllReduce(b.data(), b.data(), kN, ncclBfloat16, ncclSum, world, nullptr));
  CUDA(cudaDeviceSynchronize());
  const auto sums = a.read();
  const auto rounded = b.read();
  const std::int64_t n = ranks();
  for (std::size_t i = 0; i < kN; ++i) {
    REQUIRE(sums[i] == ((n * (n - 1) / 2) << 40) + n * static_cast<std::int64_t>(i));
    __nv_bfloat16 sum = __float2bfloat16(contribution(0, kN)[i]);
    for (int r = 1; r < ranks(); ++r) {
      const float next = __bfloat162float(__float2bfloat16(contribution(r, kN)[i]));
      sum = __float2bfloat16(__bfloat162float(sum) + next);
    }
    REQUIRE(__bfloat162float(rounded[i]) == __bfloat162float(sum));
  }
  NCCL(ncclCommDestroy(world));
}

void reduce_scatter_and_all_gather() {
  ncclComm_t world = make_communicator();
  cudaStream_t stream = make_stream();
  const auto n = static_cast<std::size_t>(ranks()), mine = static_cast<std::size_t>(rank());
  for (const std::size_t count : kCounts) {
    const std::vector<float> whole = reduced(count * n, ncclSum);
    const std::vector<float> part(whole.begin() + static_cast<std::ptrdiff_t>(mine * count),
                                  whole.begin() + static_cast<std::ptrdiff_t>((mine + 1) * count));
    Device<float> in(contribution(rank(), count * n)), out(count), gathered(count * n);
    NCCL(ncclReduceScatter(in.data(), out.data(), count, ncclFloat32, ncclSum, world, stream));
    NCCL(ncclAllGather(out.data(), gathered.data(), count, ncclFloat32, world, stream));
    NCCL(ncclReduceScatter(in.data(), in.data() + mine * count, count, ncclFloat32, ncclSum, world,
                           stream));  // in place
    NCCL(ncclAllGather(in.data() + mine * count, in.data(), count, ncclFloat32, world, stream));
    CUDA(cudaStreamSynchronize(stream));
    REQUIRE(out.read() == part);
    REQUIRE(gathered.read() == whole);
    REQUIRE(in.read() == whole);
  }
  NCCL(ncclCommDestroy(world));
  CUDA(cudaStreamDestroy(stream));
}

void broadcast_and_reduce() {
  ncclComm_t world = make_communicator();
  constexpr std::size_t kN = 33;
  for (int root = 0; root < ranks(); ++root) {
    Device<float> in(contribution(rank(), kN)), out(kN), sum(kN);
    NCCL(ncclBroadcast(in.data(), out.data(), kN, ncclFloat32, root, world, nullptr));
    NCCL(ncclReduce(in.data(), rank() == root ? sum.data() : nullptr, kN, ncclFloat32, ncclSum, root, world, nullptr));
    NCCL(ncclBroadcast(in.data(), in.data(), kN, ncclFloat32, root, world, nullptr));
    CUDA(cudaDeviceSynchronize());
    REQUIRE(out.read() == contribution(root, kN));
    REQUIRE(in.read() == contribution(root, kN));
    if (rank() == root) REQUIRE(sum.read() == reduced(kN, ncclSum));
  }
  NCCL(ncclCommDestroy(world));
}

// Everybody to the next, from the previous; what came is passed on, until it has been everywhere.
void ring() {
  ncclComm_t world = make_communicator();
  cudaStream_t stream = make_stream();
  constexpr std::size_t kN = 257;
  const int next = (rank() + 1) % ranks(), previous = (rank() + ranks() - 1) % ranks();
  Device<float> a(contribution(rank(), kN)), b(kN);
  Device<float>*out = &a, *in = &b;
  for (int step = 0; step < ranks(); ++step) {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(out->data(), kN, ncclFloat32, next, world, stream));
    NCCL(ncclRecv(in->data(), kN, ncclFloat32, previous, world, stream));
    NCCL(ncclGroupEnd());
    std::swap(in, out);
  }
  CUDA(cudaStreamSynchronize(stream));
  REQUIRE(out->read() == contribution(rank(), kN));
  NCCL(ncclCommDestroy(world));
  CUDA(cudaStreamDestroy(stream));
}

// Several messages of different sizes between the same two ranks in one group: the n-th receive takes the n-th send.
void group_keeps_the_order() {
  ncclComm_t world = make_communicator();
  cudaStream_t streams[] = {make_stream(), make_stream()};
  const int partner = rank() ^ 1;
  if (partner < ranks()) {
    std::vector<Device<float>*> out, in;
    NCCL(ncclGroupStart());
    for (std::size_t i = 0; i < 4; ++i) {
      out.push_back(new Device<float>(contribution(rank(), 10 * i + 1)));
      in.push_back(new Device<float>(10 * i + 1));
      NCCL(ncclRecv(in[i]->data(), 10 * i + 1, ncclFloat32, partner, world, streams[i % 2]));
      NCCL(ncclSend(out[i]->data(), 10 * i + 1, ncclFloat32, partner, world, streams[i / 2]));
    }
    NCCL(ncclGroupEnd());
    CUDA(cudaDeviceSynchronize());
    for (std::size_t i = 0; i < 4; ++i) {
      REQUIRE(in[i]->read() == contribution(partner, 10 * i + 1));
      delete out[i];
      delete in[i];
    }
  }
  Device<float> self_out(contribution(rank(), 5)), self_in(5);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(self_out.data(), 5, ncclFloat32, rank(), world, streams[0]));
  NCCL(ncclRecv(self_in.data(), 5, ncclFloat32, rank(), world, streams[0]));
  NCCL(ncclGroupEnd());
  CUDA(cudaDeviceSynchronize());
  REQUIRE(self_in.read() == contribution(rank(), 5));
  NCCL(ncclCommDestroy(world));
  for (cudaStream_t stream : streams) CUDA(cudaStreamDestroy(stream));
}

// One communicator on two streams: the order of issue holds, whichever stream runs first on which rank.
void one_communicator_on_two_streams() {
  ncclComm_t world = make_communicator();
  cudaStream_t streams[] = {make_stream(), make_stream()};
  std::vector<Device<float>*> data;
  for (std::size_t i = 0; i < 8; ++i) {
    data.push_back(new Device<float>(contribution(rank(), i + 1)));
    const std::size_t stream = (i / 2 + static_cast<std::size_t>(rank())) % 2;
    NCCL(ncclAllReduce(data[i]->data(), data[i]->data(), i + 1, ncclFloat32, ncclSum, world, streams[stream]));
  }
  CUDA(cudaDeviceSynchronize());
  for (std::size_t i = 0; i < 8; ++i) {
    REQUIRE(data[i]->read() == reduced(i + 1, ncclSum));
    delete data[i];
  }
  NCCL(ncclCommDestroy(world));
  for (cudaStream_t stream : streams) CUDA(cudaStreamDestroy(stream));
}

// A two-rank communicator and a stream per channel, forward and backward between neighbours. Every rank issues in an
// order of its own; nothing is grouped; each message is made by the compute
// stream, which waits until the one before has left.
void crossed_channels() {
  struct ChannelEnd {
    ncclComm_t communicator;
    cudaStream_t stream;
    bool sends;
    int peer;
    Device<float>* buffer;
  };
  constexpr std::size_t kN = 100;
  constexpr int kMessages = 5;
  std::vector<ChannelEnd> ends;
  for (int left = 0; left + 1 < ranks(); ++left) {
    for (const bool forward : {true, false}) {  // one order of creation, and of first use, on all ranks
      const int sender = forward ? left : left + 1, receiver = forward ? left + 1 : left;
      if (rank() != sender && rank() != receiver) continue;
      ChannelEnd end{make_communicator({left, left + 1}), make_stream(), rank() == sender,
                     rank() == sender ? receiver : sender, new Device<float>(kN)};
      const int peer = end.peer == left ? 0 : 1;
      if (end.sends) CUDA(cudaMemsetAsync(end.buffer->data(), 0, kN * sizeof(float), end.stream));
      NCCL(end.sends ? ncclSend(end.buffer->data(), kN, ncclFloat32, peer, end.communicator, end.stream)
                     : ncclRecv(end.buffer->data(), kN, ncclFloat32, peer, end.communicator, end.stream));
      ends.push_back(end);
    }
  }
  CUDA(cudaDeviceSynchronize());
  std::rotate(ends.begin(), ends.begin() + rank() % static_cast<int>(ends.size()), ends.end());
  if (rank() % 2 == 1) std::reverse(ends.begin(), ends.end());
  cudaStream_t compute = make_stream();
  cudaEvent_t event = nullptr;
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  std::vector<unsigned char*> received;  // pinned: a copy to pageable memory would block the host
  std::vector<int> expected;
  for (int message = 0; message < kMessages; ++message) {
    for (ChannelEnd& end : ends) {
      const int peer = end.peer > rank() ? 1 : 0;
      if (end.sends) {
        CUDA(cudaEventRecord(event, end.stream));  // the buffer is free again
        CUDA(cudaStreamWaitEvent(compute, event, 0));
        CUDA(cudaMemsetAsync(end.buffer->data(), 1 + message, kN * sizeof(float), compute));
        CUDA(cudaEventRecord(event, compute));
        CUDA(cudaStreamWaitEvent(end.stream, event, 0));
        NCCL(ncclSend(end.buffer->data(), kN, ncclFloat32, peer, end.communicator, end.stream));
      } else {
        NCCL(ncclRecv(end.buffer->data(), kN, ncclFloat32, peer, end.communicator, end.stream));
        received.push_back(nullptr);
        CUDA(cudaMallocHost(reinterpret_cast<void**>(&received.back()), kN * sizeof(float)));
        expected.push_back(1 + message);
        CUDA(cudaMemcpyAsync(received.back(), end.buffer->data(), kN * sizeof(float), cudaMemcpyDeviceToHost,
                             end.stream));
      }
    }
  }
  CUDA(cudaDeviceSynchronize());
  for (std::size_t i = 0; i < received.size(); ++i) {
    const auto byte = static_cast<unsigned char>(expected[i]);
    REQUIRE(std::all_of(received[i], received[i] + kN * sizeof(float), [byte](unsigned char b) { return b == byte; }));
    CUDA(cudaFreeHost(received[i]));
  }
  for (ChannelEnd& end : ends) {
    NCCL(ncclCommDestroy(end.communicator));
    CUDA(cudaStreamDestroy(end.stream));
    delete end.buffer;
  }
  CUDA(cudaEventDestroy(event));
  CUDA(cudaStreamDestroy(compute));
}

// A host that waits in MPI does not stop its device: rank 0's send must leave while rank 0 is in MPI_Recv.
void device_runs_while_host_waits_in_mpi() {
  ncclComm_t world = make_communicator();
  constexpr std::size_t kN = 50;
  int word = 0;
  if (rank() == 0) {
    Device<float> out(contribution(0, kN));
    NCCL(ncclSend(out.data(), kN, ncclFloat32, 1, world, nullptr));
    MPI(MPI_Recv(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    REQUIRE(word == 42);
    CUDA(cudaDeviceSynchronize());
  } else if (rank() == 1) {
    Device<float> in(kN);
    NCCL(ncclRecv(in.data(), kN, ncclFloat32, 0, world, nullptr));
    CUDA(cudaDeviceSynchronize());
    REQUIRE(in.read() == contribution(0, kN));
    word = 42;
    MPI(MPI_Send(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD));
  }
  MPI(MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
  REQUIRE(word == 42);
  NCCL(ncclCommDestroy(world));
}

constexpr Case kCases[] = {{"all_reduce", all_reduce},
                           {"all_reduce_of_other_types", all_reduce_of_other_types},
                           {"reduce_scatter_and_all_gather", reduce_scatter_and_all_gather},
                           {"broadcast_and_reduce", broadcast_and_reduce},
                           {"ring", ring},
                           {"group_keeps_the_order", group_keeps_the_order},
                           {"one_communicator_on_two_streams", one_communicator_on_two_streams},
                           {"crossed_channels", crossed_channels},
                           {"device_runs_while_host_waits_in_mpi", device_runs_while_host_waits_in_mpi}};

}  // namespace

std::span<const Case> transfer_cases() { return kCases; }

}  // namespace emulator::nccl

#include "kernels/cuda/nccl_collectives.h"

#include <algorithm>

#include "kernels/cuda/check.h"

namespace train_gpt::cuda {
namespace {

// data(n) = the sum over ranks, in the order of kernels/sum_of_ranks.h; the part of rank r is staging(r, :) with rows
// of `stride`, that of `rank` is data itself. The staging memory is overwritten.
__global__ void sum_of_ranks_kernel(float* data, float* staging, int rank, int ranks, std::int64_t stride,
                                    std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float* parts = staging + i;
  parts[rank * stride] = data[i];
  if ((ranks & (ranks - 1)) == 0) {
    for (int distance = 1; distance < ranks; distance *= 2) {
      for (int r = 0; r < ranks; r += 2 * distance) parts[r * stride] += parts[(r + distance) * stride];
    }
  } else {
    for (int r = 1; r < ranks; ++r) parts[0] += parts[r * stride];
  }
  data[i] = parts[0];
}

}  // namespace

NcclCollectives::NcclCollectives(NcclLink& link, int rank, int size)
    : link_(link), rank_(rank), size_(size), cuts_(static_cast<std::size_t>(size) + 1, 0) {
  CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&staging_),
                        static_cast<std::size_t>(size_ * kSliceElements) * sizeof(float)));
}

NcclCollectives::~NcclCollectives() { cudaFree(staging_); }

void NcclCollectives::connect() {
  const std::int64_t count = std::int64_t{64} * size_;
  float* data = staging_ + rank_ * kSliceElements;  // the only row that no peer's slice comes to
  CUDA_CHECK(cudaMemsetAsync(data, 0, static_cast<std::size_t>(count) * sizeof(float), link_.stream()));
  all_reduce(data, count);
  for (int r = 0; r <= size_; ++r) cuts_[static_cast<std::size_t>(r)] = std::int64_t{64} * r;
  all_gather(data, cuts_);
}

void NcclCollectives::all_reduce(float* data, std::int64_t count) {
  if (size_ == 2) {
    check(ncclAllReduce(data, data, static_cast<std::size_t>(count), ncclFloat, ncclSum, link_.communicator(),
                        link_.stream()),
          link_.communicator(), "all-reduce on " + link_.name());
    return;
  }
  for (int r = 0; r < size_; ++r) cuts_[static_cast<std::size_t>(r) + 1] = Communicator::piece(count, r, size_).end;
  reduce_scatter(data, cuts_);
  all_gather(data, cuts_);
}

namespace {

Communicator::Piece piece_of(std::span<const std::int64_t> cuts, int r) {
  return {cuts[static_cast<std::size_t>(r)], cuts[static_cast<std::size_t>(r) + 1]};
}

}  // namespace

void NcclCollectives::reduce_scatter(float* data, std::span<const std::int64_t> cuts) {
  std::int64_t longest = 0;
  for (int r = 0; r < size_; ++r) {
    const Communicator::Piece piece = piece_of(cuts, r);
    longest = std::max(longest, piece.end - piece.begin);
  }
  for (std::int64_t round = 0; round * kSliceElements < longest; ++round) reduce_round(data, cuts, round);
}

// Every rank gets the peers' slices of its piece, and adds.
void NcclCollectives::reduce_round(float* data, std::span<const std::int64_t> cuts, std::int64_t round) {
  const auto slice = [&](int owner) {
    const Communicator::Piece piece = piece_of(cuts, owner);
    const std::int64_t begin = std::min(piece.begin + round * kSliceElements, piece.end);
    return Communicator::Piece{begin, std::min(begin + kSliceElements, piece.end)};
  };
  const Communicator::Piece mine = slice(rank_);
  const std::int64_t n = mine.end - mine.begin;
  check(ncclGroupStart(), nullptr, "group");
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Communicator::Piece theirs = slice(peer);
    check(ncclSend(data + theirs.begin, static_cast<std::size_t>(theirs.end - theirs.begin), ncclFloat, peer,
                   link_.communicator(), link_.stream()),
          link_.communicator(), "reduce-scatter on " + link_.name());
    check(ncclRecv(staging_ + peer * kSliceElements, static_cast<std::size_t>(n), ncclFloat, peer, link_.communicator(),
                   link_.stream()),
          link_.communicator(), "reduce-scatter on " + link_.name());
  }
  check(ncclGroupEnd(), link_.communicator(), "reduce-scatter on " + link_.name());
  if (n == 0) return;
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  sum_of_ranks_kernel<<<blocks, kThreads, 0, link_.stream()>>>(data + mine.begin, staging_, rank_, size_,
                                                               kSliceElements, n);
  CUDA_CHECK(cudaGetLastError());
}

void NcclCollectives::all_gather(float* data, std::span<const std::int64_t> cuts) {
  const Communicator::Piece mine = piece_of(cuts, rank_);
  check(ncclGroupStart(), nullptr, "group");
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Communicator::Piece theirs = piece_of(cuts, peer);
    check(ncclSend(data + mine.begin, static_cast<std::size_t>(mine.end - mine.begin), ncclFloat, peer,
                   link_.communicator(), link_.stream()),
          link_.communicator(), "all-gather on " + link_.name());
    check(ncclRecv(data + theirs.begin, static_cast<std::size_t>(theirs.end - theirs.begin), ncclFloat, peer,
                   link_.communicator(), link_.stream()),
          link_.communicator(), "all-gather on " + link_.name());
  }
  check(ncclGroupEnd(), link_.communicator(), "all-gather on " + link_.name());
}

}  // namespace train_gpt::cuda

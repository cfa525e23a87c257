#include "kernels/cpu/mpi_collective.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/sum_of_ranks.h"

namespace train_gpt {
namespace {

// Elements of one slice: all slices in staging together stay near 4 MiB, however many ranks there are.
std::int64_t slice_elements(int ranks) {
  constexpr std::int64_t kStaging = std::int64_t{1} << 20;
  return std::max<std::int64_t>(1024, kStaging / std::max(1, ranks - 1));
}

}  // namespace

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string("MPI error in ") + what + ": " +
                           std::string(text, static_cast<std::size_t>(length)));
}

std::int64_t MpiCollective::staging_elements(int ranks) { return (ranks - 1) * slice_elements(ranks); }

MpiCollective::MpiCollective(MPI_Comm comm, int tag, Kind kind, float* data, std::vector<std::int64_t> cuts,
                             float* staging)
    : comm_(comm), tag_(tag), kind_(kind), data_(data), cuts_(std::move(cuts)), staging_(staging) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  parts_.resize(static_cast<std::size_t>(size_));
  std::int64_t longest = 0;
  for (int r = 0; r < size_; ++r) {
    const auto [begin, end] = piece(r);
    longest = std::max(longest, end - begin);
  }
  rounds_ = (longest + slice_elements(size_) - 1) / slice_elements(size_);
}

Communicator::Piece MpiCollective::slice(int owner) const {
  const auto [begin, end] = piece(owner);
  const std::int64_t length = slice_elements(size_);
  return {std::min(end, begin + round_ * length), std::min(end, begin + (round_ + 1) * length)};
}

void MpiCollective::post_reduce_round() {
  const auto [begin, end] = slice(rank_);
  float* arrival = staging_;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    check_mpi(
        MPI_Irecv(arrival, static_cast<int>(end - begin), MPI_FLOAT, peer, tag_, comm_, &requests_.emplace_back()),
        "reduce-scatter receive");
    arrival += slice_elements(size_);
    const auto [their_begin, their_end] = slice(peer);
    check_mpi(MPI_Isend(data_ + their_begin, static_cast<int>(their_end - their_begin), MPI_FLOAT, peer, tag_, comm_,
                        &requests_.emplace_back()),
              "reduce-scatter send");
  }
}

void MpiCollective::add_round() {
  const auto [begin, end] = slice(rank_);
  const auto arrival = [&](int peer) { return staging_ + (peer < rank_ ? peer : peer - 1) * slice_elements(size_); };
  for (int r = 0; r < size_; ++r) parts_[static_cast<std::size_t>(r)] = r == rank_ ? data_ + begin : arrival(r);
  sum_of_ranks(data_ + begin, parts_, end - begin);
}

void MpiCollective::post_gather() {
  gathering_ = true;
  constexpr std::int64_t kPiece = std::int64_t{1} << 28;  // MPI counts are ints
  const auto [mine, my_end] = piece(rank_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto [theirs, their_end] = piece(peer);
    for (std::int64_t i = theirs; i < their_end; i += kPiece) {
      check_mpi(MPI_Irecv(data_ + i, static_cast<int>(std::min(kPiece, their_end - i)), MPI_FLOAT, peer, tag_, comm_,
                          &requests_.emplace_back()),
                "all-gather receive");
    }
    for (std::int64_t i = mine; i < my_end; i += kPiece) {
      check_mpi(MPI_Isend(data_ + i, static_cast<int>(std::min(kPiece, my_end - i)), MPI_FLOAT, peer, tag_, comm_,
                          &requests_.emplace_back()),
                "all-gather send");
    }
  }
}

bool MpiCollective::advance() {
  if (size_ == 1) return true;
  if (!started_) {
    started_ = true;
    if (kind_ == Kind::all_gather || rounds_ == 0) {
      post_gather();
    } else {
      post_reduce_round();
    }
  }
  while (!requests_.empty()) {
    int finished = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &finished, MPI_STATUSES_IGNORE),
              "collective");
    if (finished == 0) return false;
    requests_.clear();
    if (gathering_) break;
    add_round();
    if (++round_ < rounds_) {
      post_reduce_round();
    } else if (kind_ == Kind::all_reduce) {
      post_gather();
    }
  }
  return true;
}

}  // namespace train_gpt

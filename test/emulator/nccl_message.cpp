#include "nccl_message.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>

namespace emulator::nccl {
namespace {

constexpr int kChannels = 8;
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

MPI_Comm duplicate = MPI_COMM_NULL;
int my_rank = 0;
int ranks = 1;

int tag_of(int context, Channel channel) { return context * kChannels + static_cast<int>(channel); }

// MPI counts are int, so large messages travel in pieces. EMULATOR_NCCL_PIECE lets tests have many with little data.
std::size_t piece_bytes() {
  static const std::size_t bytes = [] {
    const char* setting = std::getenv("EMULATOR_NCCL_PIECE");
    return setting == nullptr ? kPieceBytes : std::max(sizeof(Header), static_cast<std::size_t>(std::atol(setting)));
  }();
  return bytes;
}

// Pieces from `begin` on.
template <typename Post>
void for_each_piece(std::vector<char>& bytes, std::size_t begin, Post&& post) {
  for (std::size_t offset = begin; offset < bytes.size(); offset += piece_bytes()) {
    post(bytes.data() + offset, static_cast<int>(std::min(piece_bytes(), bytes.size() - offset)));
  }
}

bool all_done(std::vector<MPI_Request>& requests) {
  int flag = 0;
  PMPI_Testall(static_cast<int>(requests.size()), requests.data(), &flag, MPI_STATUSES_IGNORE);
  return flag != 0;
}

// Messages of aborted communicators: MPI still holds their buffers.
std::list<std::vector<char>> abandoned_buffers;
std::vector<MPI_Request> abandoned_sends;

// Takes a message that nobody waits for off MPI's hands. False if there is none.
bool discard_one() {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  PMPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, duplicate, &found, &message, &status);
  if (found == 0) return false;
  int size = 0;
  PMPI_Get_count(&status, MPI_BYTE, &size);
  std::vector<char> bytes(static_cast<std::size_t>(size));
  PMPI_Mrecv(bytes.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  return true;
}

}  // namespace

MPI_Comm private_world() { return duplicate; }
bool mpi_is_running() { return duplicate != MPI_COMM_NULL; }
int world_rank() { return my_rank; }
int world_size() { return ranks; }

void open_private_world() {
  PMPI_Comm_dup(MPI_COMM_WORLD, &duplicate);
  PMPI_Comm_rank(duplicate, &my_rank);
  PMPI_Comm_size(duplicate, &ranks);
}

// Messages that aborted communicators left are discarded first, until those of every rank are gone.
void close_private_world() {
  MPI_Request everyone = MPI_REQUEST_NULL;
  bool posted = false;
  for (int finished = 0; finished == 0;) {
    if (discard_one()) continue;
    if (!posted && all_done(abandoned_sends)) {
      PMPI_Ibarrier(duplicate, &everyone);
      posted = true;
    }
    if (posted) PMPI_Test(&everyone, &finished, MPI_STATUS_IGNORE);
    sched_yield();
  }
  PMPI_Comm_free(&duplicate);
}

MessageOut::MessageOut(int destination, int context, Channel channel, const Header& header, const void* payload,
                       std::size_t bytes)
    : bytes_(sizeof(Header) + bytes) {
  Header complete = header;
  complete.payload_bytes = bytes;
  std::memcpy(bytes_.data(), &complete, sizeof(Header));
  if (bytes != 0) std::memcpy(bytes_.data() + sizeof(Header), payload, bytes);
  for_each_piece(bytes_, 0, [&](char* data, int size) {
    requests_.push_back(MPI_REQUEST_NULL);
    PMPI_Issend(data, size, MPI_BYTE, destination, tag_of(context, channel), duplicate, &requests_.back());
  });
}

bool MessageOut::done() { return all_done(requests_); }

void MessageOut::abandon() {
  abandoned_sends.insert(abandoned_sends.end(), requests_.begin(), requests_.end());
  abandoned_buffers.push_back(std::move(bytes_));
}

MessageIn::MessageIn(int source, int context, Channel channel) : source_(source), tag_(tag_of(context, channel)) {}

bool MessageIn::done() {
  if (done_) return true;
  if (!matched_) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    PMPI_Improbe(source_, tag_, duplicate, &found, &message, &status);
    if (found == 0) return false;
    matched_ = true;
    source_ = status.MPI_SOURCE;  // may have been any
    int size = 0;
    PMPI_Get_count(&status, MPI_BYTE, &size);
    bytes_.resize(static_cast<std::size_t>(size));
    requests_.push_back(MPI_REQUEST_NULL);
    PMPI_Imrecv(bytes_.data(), size, MPI_BYTE, &message, &requests_.back());
  }
  if (!all_done(requests_)) return false;
  const std::size_t arrived = bytes_.size();
  std::memcpy(&header_, bytes_.data(), sizeof(Header));
  bytes_.resize(sizeof(Header) + header_.payload_bytes);
  if (arrived == bytes_.size()) return done_ = true;
  for_each_piece(bytes_, arrived, [&](char* data, int piece) {
    requests_.push_back(MPI_REQUEST_NULL);
    PMPI_Irecv(data, piece, MPI_BYTE, source_, tag_, duplicate, &requests_.back());
  });
  return false;
}

void MessageIn::abandon() {
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    PMPI_Cancel(&request);
    PMPI_Request_free(&request);
  }
  abandoned_buffers.push_back(std::move(bytes_));
}

}  // namespace emulator::nccl

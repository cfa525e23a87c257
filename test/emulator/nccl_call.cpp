#include "nccl_call.h"

#include <algorithm>
#include <cstring>

#include "memory.h"
#include "nccl_reduction.h"
#include "nccl_watch.h"
#include "report.h"

namespace emulator::nccl {
namespace {

constexpr char kPoison = static_cast<char>(0xFF);

std::string call_name(CallKind kind) {
  constexpr const char* kNames[] = {"ncclSend",      "ncclRecv",      "ncclAllReduce", "ncclReduceScatter",
                                    "ncclAllGather", "ncclBroadcast", "ncclReduce"};
  return kNames[static_cast<int>(kind)];
}

bool reduces(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce_scatter || kind == CallKind::reduce;
}

bool has_root(CallKind kind) { return kind == CallKind::broadcast || kind == CallKind::reduce; }

std::string describe_kind(const Header& header) {
  const auto kind = static_cast<CallKind>(header.kind);
  std::string text = call_name(kind) + "(" + std::to_string(header.count) + " x " +
                     nccl_type_name(static_cast<ncclDataType_t>(header.type));
  if (reduces(kind)) text += " " + nccl_reduction_name(static_cast<ncclRedOp_t>(header.reduction));
  if (has_root(kind)) text += " root " + std::to_string(header.root);
  if (kind == CallKind::send) text += " to rank " + std::to_string(header.root);
  if (kind == CallKind::receive) text += " from rank " + std::to_string(header.root);
  return text + ")";
}

std::string describe(const Header& header) { return describe_kind(header) + " #" + std::to_string(header.sequence); }

}  // namespace

bool is_collective(CallKind kind) { return kind != CallKind::send && kind != CallKind::receive; }

std::size_t Call::element() const { return nccl_element_bytes(type); }

std::size_t Call::send_bytes() const {
  const std::size_t bytes = count * element();
  if (kind == CallKind::receive || (kind == CallKind::broadcast && rank() != root)) return 0;
  return kind == CallKind::reduce_scatter ? bytes * static_cast<std::size_t>(ranks()) : bytes;
}

std::size_t Call::receive_bytes() const {
  const std::size_t bytes = count * element();
  if (kind == CallKind::send || (kind == CallKind::reduce && rank() != root)) return 0;
  return kind == CallKind::all_gather ? bytes * static_cast<std::size_t>(ranks()) : bytes;
}

Header Call::header() const {
  Header h;
  h.kind = static_cast<std::int32_t>(kind);
  h.type = type;
  h.reduction = reduces(kind) ? reduction : -1;
  h.root = root;
  h.count = count;
  h.sequence = sequence;
  return h;
}

std::string Call::describe() const { return nccl::describe(header()); }
std::string Call::describe_kind() const { return nccl::describe_kind(header()); }

Channel Call::outgoing() const {
  if (is_collective(kind)) return Channel::collective;
  return kind == CallKind::send ? Channel::to_receiver : Channel::to_sender;
}
Channel Call::incoming() const {
  if (is_collective(kind)) return Channel::collective;
  return kind == CallKind::send ? Channel::to_sender : Channel::to_receiver;
}

void Call::send_to(int peer, const void* data, std::size_t bytes) {
  out_.emplace_back(communicator->world_ranks[static_cast<std::size_t>(peer)], communicator->context, outgoing(),
                    header(), data, bytes);
}

void Call::expect_from(int peer) {
  in_.emplace_back(communicator->world_ranks[static_cast<std::size_t>(peer)], communicator->context, incoming());
  communicator->receivers[{in_.back().source(), incoming()}].push_back(&in_.back());
}

// Both ends compare: every message has an answer, so each sees the other's header.
void Call::check_header(const MessageIn& message) {
  const Header mine = header(), theirs = message.header();
  const bool same_kind = is_collective(kind) ? theirs.kind == mine.kind && theirs.root == mine.root : true;
  if (same_kind && theirs.type == mine.type && theirs.count == mine.count && theirs.reduction == mine.reduction) return;
  const auto& members = communicator->world_ranks;
  const auto peer = std::find(members.begin(), members.end(), message.source()) - members.begin();
  report_both_ends("nccl-mismatch",
                   communicator->describe() + ": the calls of two ranks do not match\n  this rank: " +
                       nccl::describe(mine) + "\n  rank " + std::to_string(peer) + ": " + nccl::describe(theirs) + "\n",
                   message.source());
}

bool Call::messages_done() {
  bool all = true;
  for (MessageIn& message : in_) {
    auto& queue = communicator->receivers[{message.source(), incoming()}];
    if (queue.empty() || queue.front() != &message) {
      // Taken already, or another operation's turn.
      all = all && std::find(queue.begin(), queue.end(), &message) == queue.end();
      continue;
    }
    if (!message.done()) {
      all = false;
      continue;
    }
    queue.pop_front();
    note_progress();
    check_header(message);
  }
  for (MessageOut& message : out_) all = message.done() && all;
  return all;
}

std::string Call::waits_for() const {
  std::string text;
  for (const MessageIn& message : in_) {
    const auto queue = communicator->receivers.find({message.source(), incoming()});
    if (queue == communicator->receivers.end()) continue;
    if (std::find(queue->second.begin(), queue->second.end(), &message) == queue->second.end()) continue;
    const auto& members = communicator->world_ranks;
    text += (text.empty() ? "rank " : ", ") +
            std::to_string(std::find(members.begin(), members.end(), message.source()) - members.begin());
  }
  return text.empty() ? "its own messages to be taken" : text;
}

bool Call::in_place() const {
  const auto* from = static_cast<const char*>(send_buffer);
  const auto* to = static_cast<const char*>(receive_buffer);
  return send_bytes() != 0 && receive_bytes() != 0 && from < to + receive_bytes() && to < from + send_bytes();
}

// The data of a send is what the buffer holds when the operation starts. It is looked at again when the call is done: a
// program that overwrote it meanwhile was lucky here.
void Call::stage() {
  const std::size_t bytes = send_bytes();
  device_reads(send_buffer, bytes, (describe() + " send buffer").c_str());
  const auto* data = static_cast<const char*>(send_buffer);
  staged_.assign(data, data + bytes);
}

void Call::check_send_buffer() {
  if (in_place() || staged_.empty()) return;
  device_reads(send_buffer, staged_.size(), (describe() + " send buffer").c_str());
  if (std::memcmp(send_buffer, staged_.data(), staged_.size()) == 0) return;
  fail("nccl-send-buffer-changed", describe() + " on " + communicator->describe() +
                                       ": the send buffer was written while the operation was in flight");
}

// Data that arrives replaces NaN: a program that reads too early sees NaN, and one that writes meanwhile is noticed.
void Call::poison() {
  device_writes(receive_buffer, receive_bytes(), (describe() + " receive buffer").c_str());
  if (receive_bytes() != 0) std::memset(receive_buffer, kPoison, receive_bytes());
}

void Call::deliver(std::size_t offset, const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  char* to = static_cast<char*>(receive_buffer) + offset;
  device_writes(to, bytes, (describe() + " receive buffer").c_str());
  if (*to != kPoison || std::memcmp(to, to + 1, bytes - 1) != 0) {  // all bytes equal the first
    fail("nccl-receive-buffer-changed", describe() + " on " + communicator->describe() +
                                            ": the receive buffer was written while the operation was in flight");
  }
  std::memcpy(to, data, bytes);
}

// ReduceScatter: what the owner receives. AllReduce: nearly equal parts. Reduce: all of it is the root's.
Call::Piece Call::piece(int owner) const {
  const auto r = static_cast<std::size_t>(owner), n = static_cast<std::size_t>(ranks());
  if (kind == CallKind::reduce_scatter) return {r * count, count};
  if (kind == CallKind::reduce) return owner == root ? Piece{0, count} : Piece{0, 0};
  const std::size_t begin = r * (count / n) + std::min(r, count % n);
  return {begin, count / n + (r < count % n ? 1 : 0)};
}

// Everybody gives everybody the piece that the other owns (nothing but the header where that is empty).
void Call::exchange_contributions() {
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank()) continue;
    const Piece theirs = piece(peer);
    send_to(peer, staged_.data() + theirs.begin * element(), theirs.count * element());
    expect_from(peer);
  }
}

// In order of rank, whoever came first.
void Call::reduce_my_piece() {
  const Piece mine = piece(rank());
  accumulator_.resize(mine.count * element());
  auto message = in_.begin();
  for (int r = 0; r < ranks(); ++r) {
    const char* contribution = r == rank() ? staged_.data() + mine.begin * element() : (message++)->payload();
    if (r == 0) {
      start_reduction(accumulator_.data(), contribution, mine.count, type, reduction, ranks());
    } else {
      reduce(accumulator_.data(), contribution, mine.count, type, reduction, ranks());
    }
  }
  finish_reduction(accumulator_.data(), mine.count, type, reduction, ranks());
}

void Call::start_phase() {
  out_.clear();
  in_.clear();
  if (!is_collective(kind)) {
    send_to(root, staged_.data(), staged_.size());
    expect_from(root);
  } else if (reduces(kind) && phase_ == 0) {
    exchange_contributions();
  } else {  // to everybody (of a broadcast: to and from the root): AllGather, Broadcast, second half of AllReduce
    const std::vector<char>& data = phase_ == 0 ? staged_ : accumulator_;
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == rank() || (kind == CallKind::broadcast && rank() != root && peer != root)) continue;
      send_to(peer, data.data(), data.size());
      expect_from(peer);
    }
  }
}

void Call::finish_phase() {
  if (reduces(kind) && phase_ == 0) reduce_my_piece();
  if (kind == CallKind::all_reduce && phase_ == 0) return;
  if (kind == CallKind::receive || (kind == CallKind::broadcast && rank() != root)) {
    deliver(0, in_.front().payload(), receive_bytes());
  } else if (kind == CallKind::broadcast) {
    deliver(0, staged_.data(), staged_.size());
  } else if (kind == CallKind::reduce_scatter || (kind == CallKind::reduce && rank() == root)) {
    deliver(0, accumulator_.data(), accumulator_.size());
  } else if (kind == CallKind::all_reduce || kind == CallKind::all_gather) {
    const std::vector<char>& own = kind == CallKind::all_reduce ? accumulator_ : staged_;
    auto message = in_.begin();
    for (int r = 0; r < ranks(); ++r) {
      const std::size_t offset =
          kind == CallKind::all_reduce ? piece(r).begin * element() : static_cast<std::size_t>(r) * own.size();
      if (r == rank()) {
        deliver(offset, own.data(), own.size());
      } else {
        deliver(offset, message->payload(), message->header().payload_bytes);
        ++message;
      }
    }
  }
}

void Call::start() {
  started_ = true;
  stage();
  poison();
  start_phase();
}

bool Call::advance() {
  if (done_) return true;
  if (!messages_done()) return false;
  finish_phase();
  note_progress();
  if (kind == CallKind::all_reduce && phase_ == 0) {
    phase_ = 1;
    start_phase();
    return advance();
  }
  check_send_buffer();
  return done_ = true;
}

void Call::abandon() {
  for (MessageOut& message : out_) message.abandon();
  for (MessageIn& message : in_) message.abandon();
  done_ = true;
}

}  // namespace emulator::nccl

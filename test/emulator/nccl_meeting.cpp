// Meetings: hello and welcome, see nccl_communicator.h.
#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <map>
#include <optional>

#include "nccl_communicator.h"

namespace emulator::nccl {
namespace {

// Hellos travel in the one context that no communicator has.
constexpr int kMeetings = 0;
constexpr int kContextsPerRank = 4096;

using Key = std::array<std::uint64_t, 2>;

// The answer: which meeting, how it went, and for a success context, rank and members (int32 each); for a failure the
// text.
Header welcome_header(const Hello& hello, bool success) {
  Header header;
  header.kind = success ? 1 : 0;
  header.count = hello.key[0];
  header.sequence = hello.key[1];
  return header;
}

// Answers that came, by meeting: several meetings may be under way with one collecting rank.
struct Welcome {
  bool success;
  std::vector<char> data;
};
std::map<Key, Welcome>& inbox() {
  static std::map<Key, Welcome> welcomes;
  return welcomes;
}

int next_context() {
  static int issued = 0;
  return world_rank() * kContextsPerRank + 1 + issued++ % (kContextsPerRank - 1);
}

std::list<MessageOut>& outbox() {
  static std::list<MessageOut> messages;
  return messages;
}

void send_welcome(const Hello& hello, bool success, const void* data, std::size_t bytes) {
  outbox().emplace_back(hello.world_rank, kMeetings, Channel::welcome, welcome_header(hello, success), data, bytes);
}

std::string rank_list(const std::vector<Hello>& hellos) {
  std::string text;
  for (const Hello& hello : hellos) text += (text.empty() ? "" : ", ") + std::to_string(hello.rank);
  return text;
}

// The fault in the hellos of those who came, or "".
std::string check(const std::vector<Hello>& hellos) {
  for (const Hello& hello : hellos) {
    if (hello.expected != hellos.front().expected) {
      return "rank " + std::to_string(hello.rank) + " says there are " + std::to_string(hello.expected) +
             " ranks, rank " + std::to_string(hellos.front().rank) + " says " + std::to_string(hellos.front().expected);
    }
  }
  for (std::size_t i = 0; i < hellos.size(); ++i) {
    if (hellos[i].rank != static_cast<int>(i)) return "the ranks that came are " + rank_list(hellos);
    for (std::size_t j = 0; j < i; ++j) {
      const bool together = hellos[i].color == hellos[j].color && hellos[i].color != NCCL_SPLIT_NOCOLOR;
      if (together && std::strcmp(hellos[i].gpu, hellos[j].gpu) == 0) {
        return "Duplicate GPU detected : rank " + std::to_string(j) + " and rank " + std::to_string(i) + " both on " +
               hellos[i].gpu;
      }
    }
  }
  return "";
}

void answer(std::vector<Hello> hellos) {
  std::sort(hellos.begin(), hellos.end(), [](const Hello& x, const Hello& y) { return x.rank < y.rank; });
  const std::string error = check(hellos);
  if (!error.empty()) {
    for (const Hello& hello : hellos) send_welcome(hello, false, error.data(), error.size());
    return;
  }
  std::map<int, std::vector<Hello>> groups;
  for (const Hello& hello : hellos) groups[hello.color].push_back(hello);
  for (auto& [color, group] : groups) {
    if (color == NCCL_SPLIT_NOCOLOR) {
      const std::array<std::int32_t, 2> nowhere = {0, -1};
      for (const Hello& hello : group) send_welcome(hello, true, nowhere.data(), sizeof nowhere);
      continue;
    }
    std::stable_sort(group.begin(), group.end(), [](const Hello& x, const Hello& y) { return x.order < y.order; });
    std::vector<std::int32_t> card = {next_context(), 0};
    for (const Hello& hello : group) card.push_back(hello.world_rank);
    for (std::size_t i = 0; i < group.size(); ++i) {
      card[1] = static_cast<std::int32_t>(i);
      send_welcome(group[i], true, card.data(), card.size() * sizeof(std::int32_t));
    }
  }
}

}  // namespace

Meeting::Meeting(int collecting_rank, const Hello& hello)
    : key_{hello.key[0], hello.key[1]}, hello_(collecting_rank, kMeetings, Channel::hello, {}, &hello, sizeof hello) {}

bool Meeting::done() {
  if (answered_) return true;
  serve_meetings();
  const auto found = inbox().find(key_);
  if (!hello_.done() || found == inbox().end()) return false;
  const Welcome welcome = std::move(found->second);
  inbox().erase(found);
  answered_ = true;
  if (!welcome.success) {
    error.assign(welcome.data.data(), welcome.data.size());
    return true;
  }
  std::vector<std::int32_t> card(welcome.data.size() / sizeof(std::int32_t));
  std::memcpy(card.data(), welcome.data.data(), welcome.data.size());
  context = card[0];
  rank = card[1];
  world_ranks.assign(card.begin() + 2, card.end());
  return true;
}

void serve_meetings() {
  static std::optional<MessageIn> next_hello, next_welcome;
  static std::map<Key, std::vector<Hello>> waiting;
  for (;;) {
    if (!next_hello) next_hello.emplace(MPI_ANY_SOURCE, kMeetings, Channel::hello);
    if (!next_hello->done()) break;
    Hello hello;
    std::memcpy(&hello, next_hello->payload(), sizeof hello);
    next_hello.reset();
    std::vector<Hello>& came = waiting[{hello.key[0], hello.key[1]}];
    came.push_back(hello);
    if (static_cast<int>(came.size()) < hello.expected) continue;
    answer(std::move(came));
    waiting.erase({hello.key[0], hello.key[1]});
  }
  for (;;) {
    if (!next_welcome) next_welcome.emplace(MPI_ANY_SOURCE, kMeetings, Channel::welcome);
    if (!next_welcome->done()) break;
    const Header& header = next_welcome->header();
    inbox()[{header.count, header.sequence}] = {
        header.kind == 1, {next_welcome->payload(), next_welcome->payload() + header.payload_bytes}};
    next_welcome.reset();
  }
  outbox().remove_if([](MessageOut& message) { return message.done(); });
}

}  // namespace emulator::nccl

#include "stream_queue.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "block.h"
#include "memory.h"
#include "random.h"
#include "report.h"
#include "settings.h"

namespace emulator {
namespace {

using Clock = std::chrono::steady_clock;

// streams[0] is the legacy default stream. Never shrinks in number, but a destroyed stream that has run dry is null.
std::vector<std::unique_ptr<CUstream_st>>& streams() {
  static std::vector<std::unique_ptr<CUstream_st>> all = [] {
    std::vector<std::unique_ptr<CUstream_st>> first;
    first.push_back(std::make_unique<CUstream_st>());
    return first;
  }();
  return all;
}

std::uint64_t issued = 0;
std::uint64_t finished_operations = 0;
bool stepping = false;        // an operation is being polled
std::string_view host_waits;  // in what drive_until waits
StreamClock known_to_host;
Random stream_random;

// The legacy default stream waits for what blocking streams were given before, and they for it.
bool may_start(const Stream& stream) {
  const std::uint64_t mine = stream.operations.front().issue;
  if (stream.number != 0) {
    const Stream& legacy = *streams()[0];
    return !stream.blocking || legacy.operations.empty() || legacy.operations.front().issue > mine;
  }
  return std::all_of(streams().begin() + 1, streams().end(), [mine](const auto& other) {
    return !other || !other->blocking || other->operations.empty() || other->operations.front().issue > mine;
  });
}

// Asks the operation at the stream's head to go on. True if it finished.
bool poll_head(Stream& stream) {
  Operation& operation = stream.operations.front();
  if (!operation.polled) {
    operation.polled = true;
    operation.first_polled = Clock::now();
  }
  stepping = true;
  bool finished = false;
  if (operation.kind == OperationKind::order) {
    finished = operation.poll();
  } else {
    const DeviceMemoryOpen access(operation.kind == OperationKind::device);
    race::operation_begins(stream.number, operation.sequence, operation.before, operation.what.c_str());
    finished = operation.poll();
    race::operation_ends();
  }
  stepping = false;
  if (!finished) return false;
  ++finished_operations;
  stream.operations.pop_front();
  if (stream.destroyed && stream.operations.empty()) streams()[stream.number].reset();
  return true;
}

// The next stream to try among `candidates`, by the order in force.
std::size_t choose(const std::vector<Stream*>& candidates) {
  const auto by_issue = [](const Stream* a, const Stream* b) {
    return a->operations.front().issue < b->operations.front().issue;
  };
  switch (settings().stream_order) {
    case StreamOrder::issue:
      return static_cast<std::size_t>(std::min_element(candidates.begin(), candidates.end(), by_issue) -
                                      candidates.begin());
    case StreamOrder::latest:
      return static_cast<std::size_t>(std::max_element(candidates.begin(), candidates.end(), by_issue) -
                                      candidates.begin());
    case StreamOrder::random:
      break;
  }
  static std::uint64_t started_with = 0;
  if (started_with != settings().seed) stream_random.start(started_with = settings().seed);
  return stream_random.below(static_cast<std::uint32_t>(candidates.size()));
}

// Runs operations until one finishes. False if none can at present.
bool step() {
  static std::vector<Stream*> candidates;
  candidates.clear();
  for (const auto& stream : streams()) {
    if (stream && !stream->operations.empty() && may_start(*stream)) candidates.push_back(stream.get());
  }
  while (!candidates.empty()) {
    const std::size_t chosen = choose(candidates);
    if (poll_head(*candidates[chosen])) return true;
    candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  return false;
}

// Whether some head waits for something outside this process's streams (a message, say).
bool outside_help_possible() {
  return std::any_of(streams().begin(), streams().end(), [](const auto& stream) {
    return stream && !stream->operations.empty() && stream->operations.front().polled &&
           stream->operations.front().kind != OperationKind::order;
  });
}

bool all_idle() {
  return std::all_of(streams().begin(), streams().end(), [](const auto& s) { return !s || s->operations.empty(); });
}

void require_host(std::string_view what) {
  static const pthread_t first = pthread_self();
  if (pthread_equal(first, pthread_self()) == 0) {
    fail("host-threads", std::string(what) + " called by a second host thread: the emulator serves one");
  }
  if (stepping) {
    fail("call-inside-operation", std::string(what) + " called inside a stream operation (a host function, say)");
  }
}

// A launch into a full queue blocks the host until the device has taken something from it: forever, if what the device
// waits for needs this host.
void require_room(const Stream& stream, const std::string& what) {
  constexpr std::size_t kLaunchQueue = 1024;
  if (stream.operations.size() < kLaunchQueue) return;
  const std::string* message = pending_message();
  if (message == nullptr) return;
  fail("launch-queue", what + " would be number " + std::to_string(stream.operations.size() + 1) +
                           " in the queue of stream " + std::to_string(stream.number) + ", which has room for " +
                           std::to_string(kLaunchQueue) + ", while " + *message +
                           " is pending: the host would block in the launch, and see no failure of a peer");
}

// 50 times sched_yield, then naps growing from 20 us to 1 ms: ranks may outnumber cores.
void nap(int rounds) {
  if (rounds < 50) {
    sched_yield();
    return;
  }
  const timespec length{0, std::min(20'000L << std::min((rounds - 50) / 8, 6), 1'000'000L)};
  nanosleep(&length, nullptr);
}

// While drive_until runs.
class HostWait {
 public:
  explicit HostWait(std::string_view what) : outer_(std::exchange(host_waits, what)) {}
  ~HostWait() { host_waits = outer_; }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

 private:
  std::string_view outer_;
};

}  // namespace

std::uint64_t operations_finished() { return finished_operations; }
std::string_view host_waits_in() { return host_waits; }

bool drive() {
  if (stepping || current_thread != nullptr) return false;
  bool any = false;
  while (step()) any = true;
  return any;
}

void drive_until(const std::function<bool()>& done, std::string_view what) {
  require_host(what);
  const HostWait waiting(what);
  Clock::time_point last_move = Clock::now();
  for (int rounds = 0; !done();) {
    if (step()) {
      rounds = 0;
      last_move = Clock::now();
      continue;
    }
    if (!all_idle() && !outside_help_possible()) {
      fail("stream-deadlock",
           "the host waits in " + std::string(what) + ", and no stream can continue\n" + describe_streams());
    }
    if (std::chrono::duration<double>(Clock::now() - last_move).count() > settings().watchdog_seconds) {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.1f", settings().watchdog_seconds);
      fail("watchdog", "nothing has moved for " + std::string(seconds) + " s; the host waits in " + std::string(what) +
                           "\n" + describe_streams());
    }
    nap(rounds++);
  }
}

std::string describe_streams() {
  std::string lines;
  for (const auto& stream : streams()) {
    if (!stream || stream->operations.empty()) continue;
    const Operation& head = stream->operations.front();
    char waited[48] = "not started";
    if (head.polled) {
      std::snprintf(waited, sizeof waited, "waiting for %.1f s",
                    std::chrono::duration<double>(Clock::now() - head.first_polled).count());
    }
    lines += "  stream " + std::to_string(stream->number) + ": " + head.what + ", " + waited + ", " +
             std::to_string(stream->operations.size() - 1) + " behind it\n";
  }
  return lines;
}

Stream& find_stream(cudaStream_t handle, const char* what) {
  if (handle == nullptr || handle == cudaStreamLegacy) return *streams()[0];
  for (const auto& stream : streams()) {
    if (stream.get() == handle && !stream->destroyed) return *stream;
  }
  fail("invalid-stream", std::string(what) + ": no such stream (or it was destroyed)");
}

void merge(StreamClock& into, const StreamClock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

const StreamClock& host_clock() { return known_to_host; }

void host_learns(const StreamClock& clock) {
  if constexpr (!race::kEnabled) return;
  merge(known_to_host, clock);
  const bool everything = std::all_of(streams().begin(), streams().end(), [](const auto& stream) {
    return !stream || stream->issued == 0 ||
           (stream->number < known_to_host.size() && known_to_host[stream->number] == stream->issued);
  });
  if (everything) race::all_complete();
}

void issue(Stream& stream, OperationKind kind, std::string what, std::function<bool()> poll, bool is_message) {
  require_host(what);
  require_room(stream, what);
  Operation operation;
  operation.what = std::move(what);
  operation.poll = std::move(poll);
  operation.kind = kind;
  operation.is_message = is_message;
  operation.issue = ++issued;
  operation.sequence = ++stream.issued;
  if constexpr (race::kEnabled) {
    merge(stream.clock, known_to_host);
    for (const auto& other : streams()) {
      const bool legacy_pair = other && (stream.number == 0 ? other->blocking : stream.blocking && other->number == 0);
      if (legacy_pair && other.get() != &stream) merge(stream.clock, other->clock);
    }
    stream.clock.resize(std::max<std::size_t>(stream.clock.size(), stream.number + 1));
    stream.clock[stream.number] = operation.sequence - 1;
    operation.before = stream.clock;
    stream.clock[stream.number] = operation.sequence;
  }
  stream.operations.push_back(std::move(operation));
}

void enqueue(cudaStream_t handle, std::string what, std::function<bool()> poll) {
  Stream& stream = find_stream(handle, what.c_str());
  issue(stream, OperationKind::device, std::move(what), std::move(poll));
}

void enqueue_message(cudaStream_t handle, std::string what, std::function<bool()> poll) {
  Stream& stream = find_stream(handle, what.c_str());
  issue(stream, OperationKind::device, std::move(what), std::move(poll), /*is_message=*/true);
}

const std::string* pending_message() {
  const Operation* oldest = nullptr;
  for (const auto& stream : streams()) {
    if (!stream) continue;
    for (const Operation& operation : stream->operations) {
      if (operation.is_message && (oldest == nullptr || operation.issue < oldest->issue)) oldest = &operation;
    }
  }
  return oldest == nullptr ? nullptr : &oldest->what;
}

bool stream_is_idle(cudaStream_t handle) { return find_stream(handle, "stream_is_idle").operations.empty(); }
std::uint64_t stream_number(cudaStream_t handle) { return find_stream(handle, "stream_number").number; }

void synchronise(Stream& stream, std::string_view what) {
  drive_until([&stream] { return stream.operations.empty(); }, what);
  host_learns(stream.clock);
}

void synchronise_all(std::string_view what) {
  drive_until(all_idle, what);
  for (const auto& stream : streams()) {
    if (stream) host_learns(stream->clock);
  }
}

Stream* create_stream(bool blocking, int priority) {
  auto stream = std::make_unique<CUstream_st>();
  stream->number = streams().size();
  stream->blocking = blocking;
  stream->priority = priority;
  streams().push_back(std::move(stream));
  return streams().back().get();
}

// Work that was issued still runs.
void destroy_stream(Stream& stream) {
  stream.destroyed = true;
  if (stream.operations.empty()) streams()[stream.number].reset();
}

}  // namespace emulator

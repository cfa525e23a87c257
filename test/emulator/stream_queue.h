// The queues behind stream.h, for the runtime's own calls.
#pragma once

#include <chrono>
#include <deque>
#include <memory>

#include "race.h"
#include "stream.h"

namespace emulator {

// The things that an operation may do while it runs.
enum class OperationKind : std::uint8_t {
  device,  // touch device memory
  host,    // run host code: device memory is closed
  order,   // nothing but order: event records and waits
};

struct Operation {
  std::string what;
  std::function<bool()> poll;
  OperationKind kind = OperationKind::device;
  bool is_message = false;     // waits for other ranks
  std::uint64_t issue = 0;     // position in the order of all calls
  std::uint32_t sequence = 0;  // position in its stream, from 1
  StreamClock before;          // race builds: what happened before it
  bool polled = false;
  std::chrono::steady_clock::time_point first_polled;
};

struct Stream {
  std::uint64_t number = 0;
  bool blocking = true;  // ordered with the legacy default stream
  bool destroyed = false;
  int priority = 0;
  std::deque<Operation> operations;
  std::uint32_t issued = 0;
  StreamClock clock;  // after everything issued so far
};

// One call of cudaEventRecord.
struct EventRecord {
  bool done = false;
  std::chrono::steady_clock::time_point time;
  StreamClock clock;
};

Stream& find_stream(cudaStream_t handle, const char* what);
void issue(Stream& stream, OperationKind kind, std::string what, std::function<bool()> poll, bool is_message = false);

// The host now knows that everything in `clock` is complete.
void host_learns(const StreamClock& clock);
const StreamClock& host_clock();
void merge(StreamClock& into, const StreamClock& from);

// Drives until the stream (all streams) has nothing left; the host learns of it.
void synchronise(Stream& stream, std::string_view what);
void synchronise_all(std::string_view what);

// The oldest operation that waits for other ranks: what it is; null: there is none.
const std::string* pending_message();

Stream* create_stream(bool blocking, int priority);
void destroy_stream(Stream& stream);

}  // namespace emulator

struct CUstream_st : emulator::Stream {};

struct CUevent_st {
  bool timed = true;
  std::shared_ptr<emulator::EventRecord> record;  // the latest; null: never recorded
};

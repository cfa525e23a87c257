#include "nccl_group.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <list>

#include "counters.h"
#include "first_use.h"
#include "multiprocessors.h"
#include "nccl_connect.h"
#include "nccl_refusal.h"
#include "nccl_watch.h"
#include "settings.h"
#include "stream.h"

namespace emulator::nccl {
namespace {

int depth = 0;
ncclResult_t first_error = ncclSuccess;
std::string last_refusal_text;
std::vector<std::unique_ptr<Call>> collected_calls;
std::vector<ncclComm_t*> collected_creations;

// Calls of one group that wait for connections.
struct Launch {
  std::vector<std::unique_ptr<Call>> calls;
  std::list<Connection> connections;
  bool concerns(const ncclComm* communicator) const {
    return std::any_of(calls.begin(), calls.end(),
                       [&](const auto& call) { return call->communicator == communicator; });
  }
};
std::list<Launch> launches;

// Calls of a batch start in order; a collective waits for the collectives before it, sends and receives for nothing.
bool may_start(const Batch& batch, std::size_t index) {
  for (std::size_t i = 0; i < index; ++i) {
    const Call& earlier = *batch.calls[i];
    if (!earlier.started()) return false;
    if (is_collective(batch.calls[index]->kind) && is_collective(earlier.kind) && !earlier.done()) return false;
  }
  return true;
}

std::string describe(const Batch& batch);

void begin(Batch& batch) {
  batch.runs = true;
  hold_multiprocessors(batch.communicator->ctas, describe(batch));
}

void end(Batch& batch) {
  if (batch.runs) release_multiprocessors(batch.communicator->ctas);
  batch.runs = false;
  batch.done = true;
}

// The part of the batch on one of its streams: each call is worked on by its own stream's operation.
bool advance(const std::shared_ptr<Batch>& batch, std::size_t stream) {
  serve_meetings();
  if (batch->done) return true;
  if (batch->communicator->asynchronous_error != ncclSuccess) return false;
  batch->reached[stream] = true;
  auto& queue = batch->communicator->batches;
  const bool reached_by_all =
      std::all_of(batch->reached.begin(), batch->reached.end(), [](bool reached) { return reached; });
  if (queue.front() == batch && reached_by_all) {
    if (!batch->runs) begin(*batch);
    for (std::size_t i = 0; i < batch->calls.size(); ++i) {
      Call& call = *batch->calls[i];
      if (call.stream != batch->streams[stream]) continue;
      if (!call.started() && may_start(*batch, i)) call.start();
      if (call.started()) call.advance();
    }
    if (std::all_of(batch->calls.begin(), batch->calls.end(), [](const auto& call) { return call->done(); })) {
      end(*batch);
      queue.pop_front();
      return true;
    }
  }
  note_idle();
  return false;
}

std::string describe(const Batch& batch) {
  std::string text;
  for (const auto& call : batch.calls) text += (text.empty() ? "" : ", ") + call->describe();
  if (batch.calls.size() > 1) text = "ncclGroup(" + text + ")";
  return text + " on " + batch.communicator->describe();
}

void launch(std::vector<std::unique_ptr<Call>> calls) {
  std::vector<std::shared_ptr<Batch>> batches;
  for (auto& call : calls) {
    auto found = std::find_if(batches.begin(), batches.end(),
                              [&](const auto& batch) { return batch->communicator == call->communicator; });
    if (found == batches.end()) {
      batches.push_back(std::make_shared<Batch>());
      found = batches.end() - 1;
      (*found)->communicator = call->communicator;
    }
    Batch& batch = **found;
    if (std::find(batch.streams.begin(), batch.streams.end(), call->stream) == batch.streams.end()) {
      batch.streams.push_back(call->stream);
      batch.reached.push_back(false);
    }
    batch.calls.push_back(std::move(call));
  }
  for (const auto& batch : batches) {
    batch->communicator->batches.push_back(batch);
    const std::string what = describe(*batch);
    for (std::size_t i = 0; i < batch->streams.size(); ++i) {
      enqueue_message(batch->streams[i], what, [batch, i] { return advance(batch, i); });
    }
    counters().library_calls += static_cast<std::int64_t>(batch->calls.size());
  }
}

bool is_blocking(const std::vector<std::unique_ptr<Call>>& calls) {
  return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call->communicator->blocking; });
}

// The fault that the user has planted (settings.h).
void apply_fault(const Call& call) {
  const NcclFault& fault = settings().nccl_fault;
  if (fault.kind == NcclFault::Kind::none || fault.rank != world_rank()) return;
  static int asked = 0;
  if (call.describe().rfind(fault.call + "(", 0) != 0 || ++asked != fault.count) return;
  if (fault.kind == NcclFault::Kind::broken) {
    call.communicator->asynchronous_error = ncclRemoteError;
  } else {
    raise(fault.kind == NcclFault::Kind::stop ? SIGSTOP : SIGKILL);
  }
}

// Launches are made in order: a later one may not overtake an earlier one that still connects.
void advance_launches() {
  serve_meetings();
  while (!launches.empty()) {
    Launch& first = launches.front();
    bool connected = true;
    for (Connection& connection : first.connections) connected = connection.done() && connected;
    if (!connected) {
      note_idle();
      return;
    }
    launch(std::move(first.calls));
    launches.pop_front();
    note_progress();
  }
}

ncclResult_t launch_calls(std::vector<std::unique_ptr<Call>> calls) {
  if (calls.empty()) return ncclSuccess;
  for (const auto& call : calls) {
    if (is_collective(call->kind)) first_collective(call->describe_kind() + " on " + call->communicator->describe());
  }
  const bool blocking = is_blocking(calls);
  std::string what = "ncclGroupEnd: connecting for the first use of " + calls.front()->describe() + " on " +
                     calls.front()->communicator->describe();
  launches.emplace_back();
  launches.back().connections = connect_for(calls);
  launches.back().calls = std::move(calls);
  advance_launches();
  if (launches.empty()) return ncclSuccess;
  if (!blocking) return ncclInProgress;
  drive_until(
      [] {
        advance_launches();
        return launches.empty();
      },
      what);
  return ncclSuccess;
}

ncclResult_t finish_creations(std::vector<ncclComm_t*> handles) {
  const auto all_advanced = [&] {
    bool all = true;
    for (ncclComm_t* handle : handles) {
      if ((*handle)->blocking) all = advance_creation(**handle) && all;
    }
    if (!all) note_idle();
    return all;
  };
  const std::string what = "the creation of communicators";
  drive_until(all_advanced, what);
  note_progress();
  ncclResult_t result = ncclSuccess;
  for (ncclComm_t* handle : handles) {
    ncclComm& communicator = **handle;
    if (communicator.state == CommunicatorState::creating) {
      result = ncclInProgress;
    } else if (communicator.state == CommunicatorState::failed) {
      result = communicator.asynchronous_error;
    } else if (communicator.rank < 0) {  // NCCL_SPLIT_NOCOLOR
      forget(&communicator);
      *handle = nullptr;
    }
  }
  return result;
}

}  // namespace

void group_start() { ++depth; }
bool in_group() { return depth > 0; }

ncclResult_t refuse(ncclResult_t result, const std::string& call, const std::string& rule) {
  last_refusal_text = call + ": " + rule;
  std::fprintf(stderr, "emulator: refused: %s: %s\n", ncclGetErrorString(result), last_refusal_text.c_str());
  if (in_group() && first_error == ncclSuccess) first_error = result;
  return result;
}

const std::string& last_nccl_refusal() { return last_refusal_text; }

ncclResult_t group_end() {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return ncclSuccess;
  const ncclResult_t error = std::exchange(first_error, ncclSuccess);
  auto calls = std::exchange(collected_calls, {});
  auto creations = std::exchange(collected_creations, {});
  if (error != ncclSuccess) return error;
  const ncclResult_t created = creations.empty() ? ncclSuccess : finish_creations(creations);
  const ncclResult_t launched = launch_calls(std::move(calls));
  return created != ncclSuccess ? created : launched;
}

ncclResult_t add_call(std::unique_ptr<Call> call) {
  call->sequence = ++call->communicator->calls;
  apply_fault(*call);
  collected_calls.push_back(std::move(call));
  if (in_group()) return ncclSuccess;
  group_start();
  return group_end();
}

ncclResult_t add_creation(ncclComm_t* handle) {
  collected_creations.push_back(handle);
  if (in_group()) return ncclSuccess;
  group_start();
  return group_end();
}

bool advance_launches(const ncclComm* communicator) {
  advance_launches();
  return std::none_of(launches.begin(), launches.end(),
                      [&](const Launch& launch) { return launch.concerns(communicator); });
}

void abandon_batches(ncclComm& communicator) {
  launches.remove_if([&](const Launch& launch) { return launch.concerns(&communicator); });
  for (const auto& batch : communicator.batches) {
    for (const auto& call : batch->calls) call->abandon();
    end(*batch);
  }
  communicator.batches.clear();
  communicator.receivers.clear();
}

std::string describe_calls() {
  std::string text;
  for (const ncclComm* communicator : live_communicators()) {
    for (std::size_t b = 0; b < communicator->batches.size(); ++b) {
      const Batch& batch = *communicator->batches[b];
      for (const auto& call : batch.calls) {
        if (call->done()) continue;
        text += "  " + communicator->describe() + ": " + call->describe();
        if (call->started()) {
          text += " waits for " + call->waits_for() + "\n";
        } else if (b != 0) {
          text += " waits for the communicator's earlier operations\n";
        } else {
          text += " waits for its stream\n";
        }
      }
    }
  }
  return text;
}

}  // namespace emulator::nccl

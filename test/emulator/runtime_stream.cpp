// cudaStream*, cudaEvent*, cudaLaunchHostFunc, cudaDeviceSynchronize.
#include <cuda_runtime_api.h>

#include "counters.h"
#include "report.h"
#include "runtime_error.h"
#include "stream_queue.h"

using emulator::counters;
using emulator::find_stream;
using emulator::OperationKind;
using emulator::remember;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  ++counters().streams_created;
  *stream = static_cast<cudaStream_t>(emulator::create_stream((flags & cudaStreamNonBlocking) == 0, priority));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emulator::destroy_stream(find_stream(stream, "cudaStreamDestroy"));
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = find_stream(stream, "cudaStreamGetPriority").priority;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ++counters().host_synchronisations;
  emulator::synchronise(find_stream(stream, "cudaStreamSynchronize"), "cudaStreamSynchronize");
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  ++counters().host_synchronisations;
  emulator::synchronise_all("cudaDeviceSynchronize");
  return cudaSuccess;
}

// Asking makes progress, so that a loop around it ends.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  emulator::Stream& stream = find_stream(handle, "cudaStreamQuery");
  if (!stream.operations.empty()) emulator::drive();
  if (!stream.operations.empty()) return cudaErrorNotReady;
  emulator::host_learns(stream.clock);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  issue(find_stream(stream, "cudaLaunchHostFunc"), OperationKind::host, "cudaLaunchHostFunc", [function, data] {
    function(data);
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  ++counters().events_created;
  *event = new CUevent_st{(flags & cudaEventDisableTiming) == 0, nullptr};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
  emulator::Stream& stream = find_stream(handle, "cudaEventRecord");
  auto record = std::make_shared<emulator::EventRecord>();
  event->record = record;
  issue(stream, OperationKind::order, "cudaEventRecord", [record] {
    record->done = true;
    record->time = std::chrono::steady_clock::now();
    return true;
  });
  record->clock = stream.clock;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

// Waits for the latest record at the time of this call; an event that was never recorded is not waited for.
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  emulator::Stream& stream = find_stream(handle, "cudaStreamWaitEvent");
  if (event->record == nullptr) return cudaSuccess;
  issue(stream, OperationKind::order, "cudaStreamWaitEvent", [record = event->record] { return record->done; });
  emulator::merge(stream.clock, event->record->clock);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->record == nullptr) return cudaSuccess;
  if (!event->record->done) emulator::drive();
  if (!event->record->done) return cudaErrorNotReady;
  emulator::host_learns(event->record->clock);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++counters().host_synchronisations;
  if (event->record == nullptr) return cudaSuccess;
  emulator::drive_until([record = event->record] { return record->done; }, "cudaEventSynchronize");
  emulator::host_learns(event->record->clock);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (start->record == nullptr || end->record == nullptr || !start->timed || !end->timed) {
    return remember(cudaErrorInvalidResourceHandle);
  }
  if (!start->record->done || !end->record->done) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->record->time - start->record->time).count();
  return cudaSuccess;
}

}  // extern "C"

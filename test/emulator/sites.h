// Synchronisation sites: the source lines of barriers, waits and events. For mutation tests, which demand that leaving
// out any one of them is noticed (mutate.sh), a run can
//   - list the sites it reaches: EMULATOR_SITES=FILE appends "operation file:line" per site,
//   - leave one out: EMULATOR_SKIP=file:line makes all its executions do nothing.
#pragma once

#include <cuda_runtime_api.h>

#include "block.h"

namespace emulator {

extern bool sites_matter;  // one of the two is in force
bool note_site(const char* operation, Where where);

// True if this execution is to do nothing.
inline bool left_out(const char* operation, Where where) { return sites_matter && note_site(operation, where); }

// Host calls with their source lines. The names in programs are mapped to these.
cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0,
                              const char* file = __builtin_FILE(), int line = __builtin_LINE());
cudaError_t event_record(cudaEvent_t event, cudaStream_t stream = nullptr, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE());
cudaError_t event_synchronize(cudaEvent_t event, const char* file = __builtin_FILE(), int line = __builtin_LINE());
cudaError_t stream_synchronize(cudaStream_t stream, const char* file = __builtin_FILE(), int line = __builtin_LINE());
cudaError_t device_synchronize(const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace emulator

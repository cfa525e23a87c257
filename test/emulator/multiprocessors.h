// Who holds the multiprocessors of the device. A kernel of NCCL whose peer is late spins in its blocks (CTAs), one per
// multiprocessor at most, and keeps them from everything else; the emulator counts, and knows two rules:
//
// - All NCCL kernels that have started fit on the device at once (error [nccl-residency]). Then none of them ever waits
//   for another to end before it can start, and communicators may be used in different orders on different ranks; NCCL
//   asks for one order of launches because it cannot know this ("Using multiple NCCL communicators concurrently").
// - A cuBLASLt product counts on no more multiprocessors than are free (error [shared-multiprocessors]): a persistent
//   kernel that misses a few runs a second wave, and takes twice as long. CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET tells
//   it; unset, it counts on all.
#pragma once

#include <string>

namespace emulator {

// `what` for reports: the first operation that holds some.
void hold_multiprocessors(int count, const std::string& what);
void release_multiprocessors(int count);

// Inside a stream operation: ends the process with a report if a product that counts on `target` multiprocessors (0:
// all) would miss some.
void require_multiprocessors(int target, const std::string& product);

}  // namespace emulator

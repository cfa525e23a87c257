// The environment variables that CUDA reads when it starts.
#pragma once

namespace train_gpt {

// Before the first use of CUDA in the process, and before MPI starts, which may use CUDA itself: lets up to 32 streams
// reach the GPU by queues of their own (the default of 8 is less than the channels of a V-shaped placement, and a
// blocked stream would block a stranger that follows in its queue), and loads all kernels at once: a kernel that is
// loaded at its first launch may wait for an idle GPU, which never comes while a receive waits for a peer that waits
// for this kernel's result. Variables that are set already (CUDA_DEVICE_MAX_CONNECTIONS, CUDA_MODULE_LOADING) stay.
// cuBLASLt's algorithms are loaded by Trainer::open().
void prepare_cuda_environment();

// For a job of several ranks: throws std::invalid_argument, naming variable, reason and remedy, where kernels of one
// GPU would run one after the other (CUDA_LAUNCH_BLOCKING, CUDA_DEVICE_MAX_CONNECTIONS, a profiler or checker that
// serialises them): a receive that waits for a peer would keep back what the peer waits for.
void require_concurrent_kernels();

}  // namespace train_gpt

#include "kernels/cuda/setup_deadline.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace train_gpt::cuda {

// MPI may be called by the compute thread only, so the launcher has to end the others: it does when one exits like
// this.
SetupDeadline::SetupDeadline(std::string doing)
    : thread_([this, text = std::move(doing)] {
        std::unique_lock lock(mutex_);
        if (ended_.wait_for(lock, std::chrono::seconds(kSeconds), [this] { return is_over_; })) return;
        std::fprintf(stderr, "train_gpt: error: %s: no answer for %d s; has that rank ended, or no network?\n",
                     text.c_str(), kSeconds);
        std::fflush(stderr);
        _exit(1);
      }) {}

SetupDeadline::~SetupDeadline() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

}  // namespace train_gpt::cuda

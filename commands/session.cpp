#include "commands/session.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace train_gpt {
namespace {

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// --threads, else OMP_NUM_THREADS, else the cores of this host divided among its ranks. A launcher that binds ranks to
// cores of their own has divided them already.
int thread_count(const Options& options, const HostPlace& place, int cores) {
  if (options.run.threads > 0) return options.run.threads;
  if (const char* wanted = std::getenv("OMP_NUM_THREADS")) {
    const int threads = std::atoi(wanted);
    if (threads < 1) {
      throw std::invalid_argument(std::string("OMP_NUM_THREADS=") + wanted + ": must be a number >= 1, or unset");
    }
    return threads;
  }
  const bool bound = cores < static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return bound ? cores : std::max(1, cores / place.ranks);
}

std::string plural(int n, const std::string& word) { return std::to_string(n) + " " + word + (n == 1 ? "" : "s"); }

// The GPU is chosen by the rank's number on its host. Ranks exchange tensors through MPI and host memory: until they
// can do so between GPUs, the cuda device trains with one rank.
std::unique_ptr<Device> make_device(const DeviceOptions& options, const HostPlace& place, int ranks, int threads) {
#if defined(TRAIN_GPT_CUDA)
  const bool wanted = options.device == DeviceKind::cuda;
  if (wanted || (options.device == DeviceKind::automatic && ranks == 1 && count_gpus().count > 0)) {
    if (ranks > 1) {
      throw std::invalid_argument("--device cuda with " + std::to_string(ranks) +
                                  " ranks: this build has no communicator between GPUs; use one rank, or --device cpu");
    }
    return make_cuda_device(options.precision.value_or(Precision::bf16), place.index);
  }
#else
  static_cast<void>(place);
  static_cast<void>(ranks);
  if (options.device == DeviceKind::cuda) {
    throw std::invalid_argument(
        "--device cuda: this program was built without CUDA (make says what it looked for); use --device cpu");
  }
#endif
  if (options.precision == Precision::bf16) {
    throw std::invalid_argument("--precision bf16: the cpu device computes in fp32; leave the option out");
  }
  return make_cpu_device(threads);
}

}  // namespace

Session::Session(const Options& options) {
  world_ = make_mpi_communicator({.synchronous_sends = options.testing.synchronous_sends});
  const HostPlace place = host_place();
  together([&] {
    timed_ = options.device.device == DeviceKind::timed;
    const int cores = allowed_cores();
    const int threads = timed_ ? 1 : thread_count(options, place, cores);
    device_ = make_device(options.device, place, world_->size(), threads);
    delays_ = parse_delays(options.testing.inject_delay);
    if (timed_) {
      delays_.latency += options.costs.costs.latency;
      if (options.costs.costs.bandwidth > 0) delays_.bandwidth = options.costs.costs.bandwidth;
    }
    resources_ = plural(place.ranks, "rank") + " on this host x " + plural(threads, "thread") + " on " +
                 plural(cores, "core") + "; " +
                 (timed_ ? "timed: actions take the time that costs give them" : device_->describe());
    if (timed_) return;
    if (threads > cores) {
      resources_ += "\nnote: " + plural(threads, "thread") + " per rank, but this rank may use only " +
                    plural(cores, "core") + ": lower --threads, or let the launcher bind less (MPICH: -bind-to none)";
    } else if (place.ranks > cores) {
      resources_ += "\nnote: more ranks than cores: they share cores, and measured bubbles include waiting for a core";
    }
  });
  world_ = inject_delays(std::move(world_), delays_);
}

int with_session(const Options& options, const std::function<int(Session&)>& body) {
  Session session(options);
  try {
    return body(session);
  } catch (const std::exception& error) {
    if (session.agreed_to_end()) throw;
    std::fprintf(stderr, "train_gpt: error: rank %d: %s\n", session.world().rank(), error.what());
    std::fflush(stderr);
    session.world().abort(1);
    std::abort();
  }
}

void Session::together(const std::function<void()>& setup) {
  // One byte of status, then the message.
  std::string outcome(1, '0');
  try {
    setup();
  } catch (const std::invalid_argument& error) {
    outcome = std::string("2") + error.what();
  } catch (const std::exception& error) {
    outcome = std::string("1") + error.what();
  }
  const auto all = world_->gather_host(outcome, 0);
  char verdict = '0';
  std::string message;
  for (const std::vector<char>& one : all) {
    if (verdict != '0' || one.empty() || one[0] == '0') continue;
    verdict = one[0];
    message.assign(one.begin() + 1, one.end());
  }
  world_->broadcast_host(&verdict, 1, 0);
  if (verdict == '0') return;
  agreed_ = true;
  if (world_->rank() != 0) throw QuietExit{verdict - '0'};
  if (verdict == '2') throw std::invalid_argument(message);
  throw std::runtime_error(message);
}

}  // namespace train_gpt

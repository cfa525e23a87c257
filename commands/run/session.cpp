#include "commands/run/session.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "commands/cli/wording.h"
#include "kernels/cpu/product_speed.h"
#include "pipeline/draw/markup.h"
#include "pipeline/train/state_file.h"

#if defined(TRAIN_GPT_CUDA)
#include "commands/run/gpu_peak.h"
#include "kernels/cuda/gpu_communicator.h"
#endif

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
    // OpenMP's own form: one number per level of nesting, of which the first is meant.
    const std::string first = std::string(wanted).substr(0, std::string(wanted).find(','));
    int threads = 0;
    const auto [stop, error] = std::from_chars(first.data(), first.data() + first.size(), threads);
    if (error != std::errc() || stop != first.data() + first.size() || threads < 1 || threads > kLargestThreads) {
      throw std::invalid_argument(std::string("OMP_NUM_THREADS=") + wanted + ": must be a number from 1 to " +
                                  std::to_string(kLargestThreads) + ", or unset");
    }
    return threads;
  }
  const bool bound = cores < static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return bound ? cores : std::max(1, cores / place.ranks);
}

// The GPU is chosen by the rank's number on its host, among those that CUDA_VISIBLE_DEVICES lets it see. --device auto
// takes GPUs if every rank of the job has one.
std::unique_ptr<Device> make_device(const DeviceOptions& options, const HostPlace& place, bool everywhere_gpus,
                                    int threads) {
#if defined(TRAIN_GPT_CUDA)
  if (options.device == DeviceKind::cuda || (options.device == DeviceKind::automatic && everywhere_gpus)) {
    auto device = make_cuda_device(options.precision.value_or(Precision::bf16), place.index);
    check_gpus_can_be_shared(place.ranks, count_gpus().count);
    return device;
  }
#else
  static_cast<void>(place);
  static_cast<void>(everywhere_gpus);
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

// "; matrix products reach .." for the resource line, with a warning where they are slow.
std::string speed_line(const cpu::ProductSpeed& speed) {
  char text[400];
  std::snprintf(text, sizeof text, "; matrix products reach %.0f of %.0f GFLOP/s per core", speed.reached, speed.peak);
  std::string line = text;
  if (speed.reached * 3 < speed.peak) {
    line +=
        "\nwarning: that is less than a third of what this processor can do: was the program built for another one? "
        "Build "
        "it here (make clean && make, without -march in CXXFLAGS), and look for other programs on these cores";
  }
  return line;
}

// True if every rank of the job sees a GPU.
bool all_ranks_have_gpus(Communicator& world) {
#if defined(TRAIN_GPT_CUDA)
  prepare_cuda_environment();
  double without = count_gpus().count == 0 ? 1 : 0;
  world.all_reduce_host({&without, 1});
  return without == 0;
#else
  static_cast<void>(world);
  return false;
#endif
}

// Physical memory, or the limit of a container where that is lower.
std::int64_t usable_host_memory() {
  std::int64_t bytes = std::int64_t{std::max(0L, sysconf(_SC_PHYS_PAGES))} * sysconf(_SC_PAGESIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::int64_t limit = 0;  // stays 0 where the file says "max"
    if (std::ifstream(path) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

// Collective: every rank plans with the same number.
std::int64_t least_memory_per_rank(Communicator& world, std::int64_t host_memory, const HostPlace& place) {
  std::vector<double> all(static_cast<std::size_t>(world.size()), 0.0);
  all[static_cast<std::size_t>(world.rank())] = static_cast<double>(host_memory) / place.ranks;
  world.merge_host(all);
  return static_cast<std::int64_t>(*std::min_element(all.begin(), all.end()));
}

}  // namespace

Session::Session(const Options& options) {
  world_ = make_mpi_communicator({.synchronous_sends = options.testing.synchronous_sends});
  if (const std::string trouble = disagreement(*world_, seen_of_start()); !trouble.empty()) end_together(2, trouble);
  host_ = host_place();
  const bool may_use_gpus = options.device.device == DeviceKind::automatic || options.device.device == DeviceKind::cuda;
  const bool everywhere_gpus = may_use_gpus && all_ranks_have_gpus(*world_);
  const int cores = allowed_cores();
  int threads = 1;
  together([&] {
    timed_ = options.device.device == DeviceKind::timed;
    if (!timed_) threads = thread_count(options, host_, cores);
    device_ = make_device(options.device, host_, everywhere_gpus, threads);
    delays_ = parse_delays(options.testing.inject_delay);
    if (timed_) {
      delays_.latency += options.costs.costs.latency;
      if (options.costs.costs.bandwidth > 0) delays_.bandwidth = options.costs.costs.bandwidth;
    }
    resources_ = counted(host_.ranks, "rank") + " on this host x " + counted(threads, "thread") + " on " +
                 counted(cores, "core") + "; " +
                 (timed_ ? "timed: actions take the time that costs give them" : device_->describe());
    if (timed_) return;
    if (threads > cores) {
      resources_ += "\nnote: " + counted(threads, "thread") + " per rank, but this rank may use only " +
                    counted(cores, "core") + ": lower --threads, or let the launcher bind less (MPICH: -bind-to none)";
    } else if (host_.ranks > cores) {
      resources_ += "\nnote: more ranks than cores: they share cores, and measured bubbles include waiting for a core";
    }
  });
  // Ranks that sum in different ways would make results depend on who computed what.
  agree([&] { return std::vector<Seen>{{"the arithmetic", to_string(device_->arithmetic())}}; });
  if (!everywhere_gpus) {
    if (!timed_) {
      const cpu::ProductSpeed speed = cpu::measure_product_speed();
      product_flops_ = speed.reached * 1e9 * std::min(threads, cores);
      resources_.insert(std::min(resources_.size(), resources_.find('\n')), speed_line(speed));
    }
    host_memory_ = usable_host_memory();
    memory_per_rank_ = least_memory_per_rank(*world_, host_memory_, host_);
  }
  connect_gpus();
  world_ = inject_delays(std::move(world_), delays_);
}

// Where the ranks compute on GPUs, tensors travel between those.
void Session::connect_gpus() {
#if defined(TRAIN_GPT_CUDA)
  if (!is_cuda(*device_)) return;
  GpuCommunicator gpus = make_gpu_communicator(std::move(world_), *device_);
  world_ = std::move(gpus.communicator);
  if (const auto peak = train_gpt::peak_flops(device_->describe(), device_->precision())) {
    peak_flops_ = *peak * gpus.gpus;
    char text[160];
    std::snprintf(text, sizeof text, "\npeak for MFU: %s x %.4g TFLOP/s dense; attention counted as its causal half",
                  counted(gpus.gpus, "GPU").c_str(), *peak * 1e-12);
    resources_ += text;
  }
  if (!gpus.notice.empty()) resources_ += "\nnote: " + gpus.notice;
#endif
}

void Session::end_job(const std::exception& error) {
  if (agreed_) throw;
  std::fprintf(stderr, "train_gpt: error: rank %d: %s\n", world_->rank(), printable(error.what()).c_str());
  std::fflush(stderr);
  world_->abort(1);
  std::abort();
}

void Session::together(const std::function<void()>& setup) {
  // One byte of status, then the message.
  std::string outcome(1, '0');
  const int rank = world_->rank();
  const std::string who = rank == 0 ? "" : "rank " + std::to_string(rank) + " on host " + host_name() + ": ";
  try {
    setup();
  } catch (const std::invalid_argument& error) {
    outcome = "2" + who + error.what();
  } catch (const std::exception& error) {
    outcome = "1" + who + error.what();
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
  if (verdict != '0') end_together(verdict - '0', message);
}

void Session::agree(const std::function<std::vector<Seen>()>& look) {
  std::vector<Seen> seen;
  together([&] { seen = look(); });
  if (const std::string trouble = disagreement(*world_, seen); !trouble.empty()) end_together(2, trouble);
}

void Session::end_together(int status, const std::string& message) {
  agreed_ = true;
  if (world_->rank() != 0) throw QuietExit{status};
  if (status == 2) throw std::invalid_argument(message);
  throw std::runtime_error(message);
}

int fail_together(const std::string& message, int status) {
  const MpiSession mpi;
  const std::unique_ptr<Communicator> world = make_mpi_communicator();
  const std::string trouble = disagreement(*world, seen_of_start());
  if (world->rank() != 0) return status;
  std::fprintf(stderr, "train_gpt: error: %s\n", (trouble.empty() ? message : trouble).c_str());
  return status;
}

}  // namespace train_gpt

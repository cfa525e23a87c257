#include "commands/run/session.h"

#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "commands/cli/wording.h"
#include "commands/run/launch.h"
#include "commands/run/setup.h"
#include "kernels/cpu/product_speed.h"
#include "pipeline/draw/markup.h"
#include "pipeline/train/state_file.h"
#include "pipeline/train/trainer.h"

#if defined(TRAIN_GPT_CUDA)
#include "commands/run/gpu_peak.h"
#include "kernels/cuda/cuda_environment.h"
#include "kernels/cuda/gpu_communicator.h"
#include "kernels/cuda/gpu_memory.h"
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
    // OpenMP's own form has one number per level of nesting; the first counts.
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
                                    int threads, int ranks) {
#if defined(TRAIN_GPT_CUDA)
  if (options.device == DeviceKind::cuda || (options.device == DeviceKind::automatic && everywhere_gpus)) {
    if (ranks > 1) require_concurrent_kernels();
    auto device = make_cuda_device(options.precision.value_or(Precision::bf16), place.index);
    check_gpus_can_be_shared(place.ranks, count_gpus().count);
    return device;
  }
#else
  static_cast<void>(place);
  static_cast<void>(everywhere_gpus);
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

// The reason why some rank of the job sees no GPU; empty: every rank sees one. Collective.
std::string why_no_gpus(Communicator& world) {
#if defined(TRAIN_GPT_CUDA)
  const GpuCount mine = count_gpus();
  std::string reason = mine.count > 0 ? "" : mine.reason;
  std::string found;
  for (const std::vector<char>& one : world.gather_host(reason, 0)) {
    if (found.empty()) found.assign(one.begin(), one.end());
  }
  auto length = static_cast<std::int64_t>(found.size());
  world.broadcast_host(&length, sizeof length, 0);
  found.resize(static_cast<std::size_t>(length));
  if (length > 0) world.broadcast_host(found.data(), length, 0);
  return found;
#else
  static_cast<void>(world);
  return "this program was built without CUDA";
#endif
}

bool may_use_gpus(const Options& options) {
  return options.device.device == DeviceKind::automatic || options.device.device == DeviceKind::cuda;
}

// Physical memory, or the limit of a container if that is lower.
std::int64_t usable_host_memory() {
  std::int64_t bytes = std::int64_t{std::max(0L, sysconf(_SC_PHYS_PAGES))} * sysconf(_SC_PAGESIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::int64_t limit = 0;  // stays 0 if the file says "max"
    if (std::ifstream(path) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

// Collective: every rank plans with the same number.
std::int64_t least_of_all(Communicator& world, std::int64_t bytes) {
  std::vector<double> all(static_cast<std::size_t>(world.size()), 0.0);
  all[static_cast<std::size_t>(world.rank())] = static_cast<double>(std::max<std::int64_t>(bytes, 1));
  world.one_hot_sum(all);
  return static_cast<std::int64_t>(*std::min_element(all.begin(), all.end()));
}

// MPI reports it in many lines, and ends the rank at its start.
void note_full_shared_memory() {
  constexpr double kOfARank = 8.0 * 1024 * 1024;
  struct statvfs shared = {};
  const Launch launch = launch_from_environment();
  if (launch.ranks == 1 || launch.rank != 0 || statvfs("/dev/shm", &shared) != 0 || shared.f_blocks == 0) return;
  const double free = static_cast<double>(shared.f_bavail) * static_cast<double>(shared.f_frsize);
  if (free >= kOfARank) return;
  std::fprintf(
      stderr,
      "train_gpt: note: /dev/shm has %.1f MiB free, and MPI may take some MiB of it for each rank of a host: make "
      "room there (df /dev/shm), or do without (UCX_TLS=tcp,self mpirun ..)\n",
      free / 1024 / 1024);
}

}  // namespace

Session::BeforeMpi::BeforeMpi(const Options& options) {
  note_full_shared_memory();
#if defined(TRAIN_GPT_CUDA)
  if (may_use_gpus(options)) prepare_cuda_environment();
#else
  static_cast<void>(options);
#endif
}

Session::Session(const Options& options) : before_mpi_(options) {
  world_ = make_mpi_communicator({.synchronous_sends = options.testing.synchronous_sends});
  if (const std::string trouble = disagreement(*world_, seen_of_start()); !trouble.empty()) end_together(2, trouble);
  host_ = host_place();
  order_ranks(options.batch.data_parallel, options.batch.rank_order);
  const std::string no_gpus = may_use_gpus(options) ? why_no_gpus(*world_) : "they are not wanted";
  const bool everywhere_gpus = no_gpus.empty();
  const int cores = allowed_cores();
  int threads = 1;
  together([&] {
    timed_ = options.device.device == DeviceKind::timed;
    if (!timed_) threads = thread_count(options, host_, cores);
    device_ = make_device(options.device, host_, everywhere_gpus, threads, world_->size());
    delays_ = parse_delays(options.testing.inject_delay);
    if (timed_) {
      if (options.costs.costs.has_links() || options.costs.cluster_given)
        delays_.link = [options](int source, int destination, int ranks) {
          const LinkCost link = link_cost(given_costs(options, ranks), ranks, source, destination);
          return DelaySpec::Link{link.latency, link.bandwidth};
        };
    }
    const char* neighbours =
        options.batch.rank_order == RankOrder::replicas ? " (neighbours: the replicas of a stage)" : "";
    resources_ = counted(host_.ranks, "rank") + " on this host" + neighbours + " x " + counted(threads, "thread") +
                 " on " + counted(cores, "core") + "; " +
                 (timed_ ? "timed: actions take the time that costs give them" : device_->describe());
    if (timed_) return;
    if (options.device.device == DeviceKind::automatic && !everywhere_gpus) {
      resources_ += " (no GPUs: " + no_gpus + ")";
    }
    if (threads > cores) {
      resources_ += "\nnote: " + counted(threads, "thread") + " per rank, but this rank may use only " +
                    counted(cores, "core") + ": lower --threads, or let the launcher bind less (MPICH: -bind-to none)";
    } else if (host_.ranks > cores) {
      resources_ += "\nnote: more ranks than cores: they share cores, and measured bubbles include waiting for a core";
    }
  });
  // If ranks summed in different ways, results would depend on the layout.
  agree([&] { return std::vector<Seen>{{"the arithmetic", to_string(device_->arithmetic())}}; });
  memory_of_host_ = usable_host_memory();
  if (!everywhere_gpus) {
    if (!timed_) {
      const cpu::ProductSpeed speed = cpu::measure_product_speed();
      product_flops_ = speed.reached * 1e9 * std::min(threads, cores);
      resources_.insert(std::min(resources_.size(), resources_.find('\n')), speed_line(speed));
    }
    host_memory_ = memory_of_host_;
    memory_per_rank_ = least_of_all(*world_, host_memory_ / host_.ranks);
  }
  connect_gpus();
  world_ = inject_delays(std::move(world_), delays_);
}

void Session::order_ranks(int data_parallel, RankOrder order) {
  const auto ordered = [&](int rank) { return rank_in_order(rank, world_->size(), data_parallel, order); };
  for (int& member : host_.members) member = ordered(member);
  if (order != RankOrder::pipeline) world_ = world_->split(0, ordered(world_->rank()));
}

// If the ranks compute on GPUs, tensors travel between those.
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
  const GpuMemory memory = gpu_memory(world_->size(), gpus.most_ranks);
  memory_per_rank_ = least_of_all(*world_, memory.for_plan());
  resources_ += "\n" + memory.describe();
#endif
}

void Session::end_job(const std::exception& error) {
  if (agreed_) throw;
  const bool of_all_ranks = dynamic_cast<const NotFinite*>(&error) != nullptr;  // the first says so and ends the job
  if (!of_all_ranks || is_first()) {
    std::fprintf(stderr, "train_gpt: error: rank %d: %s\n", world_->rank(), printable(error.what()).c_str());
    std::fflush(stderr);
  }
  // When a job is aborted the launcher drops output that it has not yet passed on.
  if (of_all_ranks) std::this_thread::sleep_for(is_first() ? std::chrono::seconds(1) : std::chrono::seconds(20));
  world_->abort(1);
  std::abort();
}

std::int64_t planned_workspace_bytes(DeviceKind device, Precision precision, int threads, const ModelConfig& model,
                                     const BatchShape& batch) {
#if defined(TRAIN_GPT_CUDA)
  if (device == DeviceKind::cuda) {
    return cuda_workspace_bytes(precision, batch.rows, batch.seq_len, model.hidden, model.heads);
  }
#else
  static_cast<void>(device);
  static_cast<void>(precision);
#endif
  return make_cpu_device(threads)->workspace_bytes(batch.rows, batch.seq_len, model.hidden, model.heads,
                                                   model.padded_vocab());
}

HeadChunks planned_head_chunks([[maybe_unused]] DeviceKind device) {
#if defined(TRAIN_GPT_CUDA)
  if (device == DeviceKind::cuda) return HeadChunks::for_gpu;
#endif
  return HeadChunks::for_cpu;
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

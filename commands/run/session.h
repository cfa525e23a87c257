// The basis of every command that runs under mpirun: MPI, the ranks of the job, the device of this rank.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands/cli/options.h"
#include "commands/run/agreement.h"
#include "kernels/communicator.h"
#include "kernels/cpu/mpi_communicator.h"
#include "kernels/device.h"
#include "kernels/injected_delays.h"
#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

// Thrown if another rank has already said what went wrong: end with this status and print nothing.
struct QuietExit {
  int status = 1;
};

class Session {
 public:
  explicit Session(const Options& options);

  Communicator& world() { return *world_; }
  Device& device() { return *device_; }
  const HostPlace& host() const { return host_; }
  // Bytes of this host's memory that the job may use; 0 if it computes on GPUs.
  std::int64_t host_memory() const { return host_memory_; }
  // Bytes of this host's memory, whatever device computes.
  std::int64_t memory_of_host() const { return memory_of_host_; }
  // Bytes that the plan of a rank may take of its share of its host's memory or of its GPU's; the least of all ranks.
  std::int64_t memory_per_rank() const { return memory_per_rank_; }
  bool on_gpus() const { return host_memory_ == 0; }
  // True on the timed device: actions take the time that costs give them, and compute nothing.
  bool is_timed() const { return timed_; }
  bool is_first() const { return world_->rank() == 0; }
  const DelaySpec& delays() const { return delays_; }
  // "2 ranks on this host x 1 thread = 2 of 2 cores ..."
  const std::string& resources() const { return resources_; }

  // FLOP/s of all GPUs of the job, assumed to be like this rank's; empty for the cpu and for unknown cards.
  std::optional<double> peak_flops() const { return peak_flops_; }
  // FLOP/s that matrix products in the cache reach on all threads of this rank's cpu device; empty for other devices.
  std::optional<double> product_flops() const { return product_flops_; }

  // Runs `setup` on every rank; it must not communicate. If it throws std::invalid_argument or std::runtime_error on
  // any rank, rank 0 throws the message of the lowest such rank and all others QuietExit: one message, all ranks end.
  void together(const std::function<void()>& setup);
  // Compares what `look` returns on all ranks; throws in the same way, naming rank, host and what differs.
  void agree(const std::function<std::vector<Seen>()>& look);
  // To be called where `error` is caught: prints it and ends the whole job or, if all ranks have agreed to end,
  // rethrows it.
  [[noreturn]] void end_job(const std::exception& error);

 private:
  void order_ranks(int data_parallel, RankOrder order);
  void connect_gpus();
  // Ends all ranks with one message.
  [[noreturn]] void end_together(int status, const std::string& message);

  // CUDA's variables are set before MPI starts, which may start CUDA.
  struct BeforeMpi {
    explicit BeforeMpi(const Options& options);
  };
  BeforeMpi before_mpi_;
  MpiSession mpi_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Device> device_;
  DelaySpec delays_;
  HostPlace host_;
  bool timed_ = false;
  std::int64_t memory_of_host_ = 0;
  std::int64_t host_memory_ = 0;
  std::int64_t memory_per_rank_ = 0;
  std::string resources_;
  std::optional<double> peak_flops_;
  std::optional<double> product_flops_;
  bool agreed_ = false;  // all ranks have, to end
};

// For a rank whose start failed before it could join a session in which others may wait for it: prints one message for
// all ranks. Returns the exit status.
int fail_together(const std::string& message, int status);

// Device::workspace_bytes of a device that this machine need not have: for plans.
std::int64_t planned_workspace_bytes(DeviceKind device, Precision precision, int threads, const ModelConfig& model,
                                     const BatchShape& batch);
// Device::head_chunks of such a device.
HeadChunks planned_head_chunks(DeviceKind device);

}  // namespace train_gpt

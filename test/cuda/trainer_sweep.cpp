// The trainer on emulated GPUs: executor, trainer, cuda device, NCCL and staged communicators as in the product.
//
//   EMULATOR_DEVICES=4 mpirun -n 4 trainer_sweep [--full] [--only TEXT]
//
// Bits: every schedule on 2 and 4 ranks against one rank, fp32 and bf16, with optimistic steps as well. Curves: bf16
// within 1% of fp32. Golden: the losses of llm.c's trainer. Quiet steps: after step 0 no call waits for the device,
// allocates, or makes a stream, an event or a communicator (the read-back at the end of a step polls an event).
// Launches: what a layer and a step's end take. Prints `N passed, N failed` on rank 0.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "counters.h"  // of the emulator
#include "kernels/cpu/mpi_communicator.h"
#include "kernels/cuda/cuda_environment.h"
#include "kernels/cuda/gpu_communicator.h"
#include "kernels/cuda/staged_communicator.h"
#include "model/checkpoint.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/flushless.h"
#include "pipeline/train/trainer.h"
#include "test/golden_formula.h"
#include "test/pipeline/train/training_runs.h"

namespace {

using namespace train_gpt;
using test::Outcome;
using test::Run;

struct Settings {
  bool full = false;
  std::string only;
};

// Calls whose number must not grow from one step to the next.
struct LoudCalls {
  explicit LoudCalls(const emulator::Counters& c)
      : waits(c.host_synchronisations),
        allocations(c.allocations + c.frees),
        streams(c.streams_created),
        events(c.events_created),
        communicators(c.communicators_created) {}
  LoudCalls() = default;
  bool operator==(const LoudCalls&) const = default;

  std::int64_t waits = 0, allocations = 0, streams = 0, events = 0, communicators = 0;
};

class Sweep {
 public:
  Sweep(const Settings& settings, int host_index) : settings_(settings) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      devices_[precision] = make_cuda_device(precision, host_index);
    }
    GpuCommunicator gpus = make_gpu_communicator(make_mpi_communicator(), *devices_[Precision::fp32]);
    world_ = std::move(gpus.communicator);
    report("every rank has a GPU of its own", gpus.notice.empty() && gpus.gpus == world_->size());
  }

  void bits();
  void curves();
  void golden_losses();
  void launches();
  int finish() const {
    if (first()) std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  bool first() const { return world_->rank() == 0; }
  bool wanted(const std::string& name) const { return name.find(settings_.only) != std::string::npos; }
  void report(const std::string& name, bool good) {
    if (!first()) return;
    (good ? passed_ : failed_)++;
    if (!good) std::printf("failed: %s\n", name.c_str());
    std::fflush(stdout);
  }
  // On the first ranks of the job; `quiet` says whether the steps after the first were.
  Outcome run_case(const Run& run, Precision precision, bool staged, bool& quiet);
  const Outcome& one_rank(const Run& run, Precision precision);
  std::int64_t launches_per_step(int layers, int micro_batches);
  double golden_loss_difference(const std::string& path, const std::string& schedule, int p, int steps);

  Settings settings_;
  std::map<Precision, std::unique_ptr<Device>> devices_;
  std::unique_ptr<Communicator> world_;
  // By precision, micro-batches, groups, clip, vocabulary, layers, whether gradients are old, and ranks.
  std::map<std::tuple<Precision, int, int, double, std::int64_t, std::int64_t, bool, int>, Outcome> references_;
  int passed_ = 0;
  int failed_ = 0;
};

Outcome Sweep::run_case(const Run& run, Precision precision, bool staged, bool& quiet) {
  Device& device = *devices_[precision];
  const bool takes_part = world_->rank() < run.ranks * run.replicas;
  std::unique_ptr<Communicator> group;
  if (staged) {
    group = make_staged_communicator(make_mpi_communicator(), device)->split(takes_part ? 1 : 0, world_->rank());
  } else {
    // The stream is the device's, so the communicator is of this device too.
    group =
        make_gpu_communicator(make_mpi_communicator(), device).communicator->split(takes_part ? 1 : 0, world_->rank());
  }
  Outcome outcome;
  LoudCalls after_first;
  double loud = 0;
  if (takes_part) {
    outcome = test::train_rank(*group, device, run, {}, [&](std::int64_t step) {
      const LoudCalls now(emulator::counters());
      if (step == 0) after_first = now;
      if (now == after_first) return;
      if (loud == 0) {
        std::fprintf(stderr, "rank %d, step %d: %d waits, %d allocations, %d streams, %d events, %d communicators\n",
                     group->rank(), static_cast<int>(step), static_cast<int>(now.waits - after_first.waits),
                     static_cast<int>(now.allocations - after_first.allocations),
                     static_cast<int>(now.streams - after_first.streams),
                     static_cast<int>(now.events - after_first.events),
                     static_cast<int>(now.communicators - after_first.communicators));
      }
      loud = 1;
    });
  }
  world_->all_reduce_host({&loud, 1});
  quiet = loud == 0;
  return outcome;
}

const Outcome& Sweep::one_rank(const Run& run, Precision precision) {
  const bool delayed = is_flushless(run.schedule);
  // What depends on the number of ranks is held against a run with breaks.
  const int ranks = stashes_weights(run.schedule) ? run.ranks : 1;
  Outcome& reference = references_[{precision, run.micro_batches * run.replicas, run.groups, run.grad_clip, run.vocab,
                                    run.layers, delayed, ranks}];
  if (reference.hash.empty()) {
    Run alone = run;
    alone.schedule = delayed ? run.schedule : "gpipe";
    alone.ranks = ranks;
    alone.drain_every = stashes_weights(run.schedule) ? 1 : 0;
    alone.replicas = 1;
    alone.micro_batches = run.micro_batches * run.replicas;
    alone.chunks = 0;
    alone.zero = 0;
    alone.optimistic = false;
    bool quiet = false;
    reference = run_case(alone, precision, /*staged=*/false, quiet);
    if (first() && reference.hash.empty()) std::abort();
    report("quiet steps on one rank", quiet);
    if (!first()) reference.hash = "known to rank 0";
  }
  return reference;
}

struct Case {
  std::string schedule;
  int ranks = 2;
  int replicas = 1;
  bool staged = false;
  int micro_batches = 4;  // of all replicas
  bool optimistic = false;
  double clip = 0.5;
  bool shards = false;  // a head of three shards, spread over the ranks
  int layers = 3;
  int chunks = 0;
  int zero = 0;

  std::string name(Precision precision) const {
    std::string text = schedule + " p=" + std::to_string(ranks) + " d=" + std::to_string(replicas) +
                       (precision == Precision::bf16 ? " bf16" : " fp32") + (staged ? " staged" : "");
    if (shards) text += " shards";
    if (layers != 3) text += " layers=" + std::to_string(layers);
    if (micro_batches != 4) text += " m=" + std::to_string(micro_batches);
    if (zero > 0) text += " zero=" + std::to_string(zero);
    if (optimistic) text += " optimistic, clip " + std::to_string(clip);
    return text;
  }
  Run run(int steps) const {
    Run result;
    result.schedule = schedule;
    result.ranks = ranks;
    result.replicas = replicas;
    result.chunks = chunks;
    result.zero = zero;
    result.micro_batches = (schedule == "dualpipe" ? 2 * ranks : micro_batches) / replicas;
    result.groups = schedule == "dualpipe" ? 2 : replicas;               // of the whole step
    result.steps = is_flushless(schedule) ? std::max(steps, 4) : steps;  // to have some with a full pipe
    result.optimistic = optimistic;
    result.grad_clip = clip;
    if (stashes_weights(schedule)) {
      result.grad_clip = 0;
      result.tied = false;
    }
    result.layers = layers;
    if (!shards) return result;
    result.layers = 1;
    result.hidden = 12;
    result.vocab = 4500;
    return result;
  }
};

constexpr double kNeverClips = 1e9;
constexpr double kAlwaysClips = 1e-3;

std::vector<Case> cases(bool full) {
  std::vector<Case> all;
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"}) {
    for (const int p : {1, 2, 4}) {
      if (p > 1 || schedule != "dualpipe") all.push_back({.schedule = schedule, .ranks = p});
    }
    if (!full) continue;
    for (const int p : {2, 4}) all.push_back({.schedule = schedule, .ranks = p, .staged = true});
  }
  for (const bool staged : {false, true}) {
    all.push_back({.schedule = "1f1b", .ranks = 2, .replicas = 2, .staged = staged});
    if (staged && !full) continue;
    for (const double clip : {kNeverClips, kAlwaysClips}) {
      all.push_back({.schedule = "zb-h1", .staged = staged, .optimistic = true, .clip = clip});
    }
  }
  for (const int p : {1, 2, 4}) all.push_back({.schedule = "2bw", .ranks = p});
  all.push_back({.schedule = "2bw", .ranks = 2, .replicas = 2});
  all.push_back({.schedule = "2bw", .ranks = 4, .staged = true});
  all.push_back({.schedule = "pipedream", .ranks = 2});
  all.push_back({.schedule = "pipedream", .ranks = 4, .staged = true});
  all.push_back({.schedule = "gpipe", .ranks = 1, .replicas = 4});
  all.push_back({.schedule = "1f1b", .ranks = 2, .replicas = 2, .zero = 1});
  all.push_back({.schedule = "breadth-first", .ranks = 2, .replicas = 2, .chunks = 4, .zero = 2});
  all.push_back({.schedule = "breadth-first", .ranks = 1, .replicas = 4, .chunks = 8, .zero = 3});
  all.push_back({.schedule = "interleaved", .ranks = 2, .replicas = 2, .chunks = 4, .zero = 3});
  all.push_back({.schedule = "zb-v", .ranks = 2, .replicas = 2, .zero = 3});
  all.push_back({.schedule = "breadth-first", .ranks = 2, .replicas = 2, .staged = true, .chunks = 4, .zero = 3});
  all.push_back({.schedule = "1f1b", .ranks = 2, .shards = true});
  all.push_back({.schedule = "zb-h1", .ranks = 4, .shards = true});
  // An action launches more than the GPU's queue holds.
  all.push_back({.schedule = "1f1b", .micro_batches = 2, .layers = 64});
  for (const std::string schedule : {"1f1b", "zb-v", "dualpipe"}) {
    if (!full) all.push_back({.schedule = schedule, .staged = true});
  }
  if (!full) return all;
  // More micro-batches than the device has pieces of pinned memory for their tokens.
  all.push_back({.schedule = "1f1b", .micro_batches = 40});
  all.push_back({.schedule = "1f1b", .micro_batches = 40, .optimistic = true, .clip = kNeverClips});
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb-v"}) {
    for (const double clip : {kNeverClips, 0.5, kAlwaysClips}) {
      all.push_back({.schedule = schedule, .ranks = 4, .optimistic = true, .clip = clip});
    }
  }
  return all;
}

void Sweep::bits() {
  const int steps = settings_.full ? 6 : 2;
  for (const Case& one : cases(settings_.full)) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const std::string name = one.name(precision);
      if (!wanted(name) || one.ranks * one.replicas > world_->size()) continue;
      if (one.layers > 3 && precision != Precision::fp32) continue;
      Run run = one.run(steps);
      const Outcome& expected = one_rank(run, precision);
      bool quiet = false;
      const Outcome actual = run_case(run, precision, one.staged, quiet);
      report(name + ": other bits than one rank", !first() || actual == expected);
      report(name + ": a step after the first waits or allocates", quiet);
      if (!one.optimistic) continue;
      const bool redone = one.clip == kNeverClips    ? actual.redone == 0
                          : one.clip == kAlwaysClips ? actual.redone == steps - 1
                                                     : true;
      report(name + ": takes back " + std::to_string(actual.redone) + " steps", !first() || redone);
    }
  }
}

void Sweep::curves() {
  if (!wanted("curves")) return;
  Run run;
  run.schedule = "1f1b";
  run.ranks = 2;
  run.steps = settings_.full ? 12 : 4;
  bool quiet = false;
  const Outcome wide = run_case(run, Precision::fp32, false, quiet);
  const Outcome narrow = run_case(run, Precision::bf16, false, quiet);
  bool close = true;
  for (std::size_t i = 0; i < wide.losses.size(); ++i) {
    close = close && std::abs(narrow.losses[i] - wide.losses[i]) < 0.01 * wide.losses[i];
  }
  report("the bf16 losses are more than 1% from those of fp32", close);
}

// Kernels, copies and library calls of one training step on one rank.
std::int64_t Sweep::launches_per_step(int layers, int micro_batches) {
  Run run;
  run.layers = layers;
  run.micro_batches = micro_batches;
  run.steps = 3;
  const auto issued = [] {
    const emulator::Counters& c = emulator::counters();
    return c.launches + c.copies + c.library_calls;
  };
  std::int64_t before = 0, after = 0;
  const auto group =
      make_gpu_communicator(make_mpi_communicator(), *devices_[Precision::bf16]).communicator->split(world_->rank(), 0);
  test::train_rank(*group, *devices_[Precision::bf16], run, {}, [&](std::int64_t step) {
    before = after;
    after = issued();
  });
  return after - before;
}

// The launches of a step are linear in micro-batches and layers, except those that a step has once: its end, and
// setting gradients to zero at its beginning.
void Sweep::launches() {
  if (!wanted("launches")) return;
  constexpr int kFew = 2, kMany = 12;
  const std::int64_t few2 = launches_per_step(kFew, 2), few3 = launches_per_step(kFew, 3);
  const std::int64_t many2 = launches_per_step(kMany, 2), many3 = launches_per_step(kMany, 3);
  const std::int64_t per_layer = ((many3 - many2) - (few3 - few2)) / (kMany - kFew);
  const std::int64_t once = many2 - 2 * (many3 - many2), once_few = few2 - 2 * (few3 - few2);
  if (first()) {
    std::printf(
        "launches: %d per layer and micro-batch, %d per micro-batch beside its layers, %d (%d) once per step of "
        "%d (%d) layers\n",
        static_cast<int>(per_layer), static_cast<int>(few3 - few2 - kFew * per_layer), static_cast<int>(once),
        static_cast<int>(once_few), kMany, kFew);
  }
  report("more than 24 launches per layer and micro-batch", per_layer <= 24);
  report("more than 12 launches once per step", once <= 12);
}

// The largest difference to the losses of the public trainer, on rank 0.
double Sweep::golden_loss_difference(const std::string& path, const std::string& schedule, int p, int steps) {
  Device& device = *devices_[Precision::fp32];
  const bool takes_part = world_->rank() < p;
  const auto group = world_->split(takes_part ? 1 : 0, world_->rank());
  double worst = 0;
  if (takes_part) {
    const ModelFile file(path);
    PlanRequest request;
    request.model = file.config();
    request.batch = {.rows = 1, .seq_len = golden::kSeqLen, .micro_batches = static_cast<int>(golden::kRows)};
    request.schedule =
        make_schedule(ScheduleRequest{.name = schedule, .ranks = p, .micro_batches = request.batch.micro_batches});
    request.partition = uniform_partition(request.model, request.schedule.placement.depth());
    request.head_chunks = device.head_chunks();
    request.workspace_bytes = device.workspace_bytes(1, golden::kSeqLen, request.model.hidden, request.model.heads,
                                                     request.model.padded_vocab());
    const Plan plan = make_plan(request);
    Groups groups = make_groups(*group, make_layout(p, 1), plan);
    Trainer trainer(device, groups, plan,
                    {.learning_rate = {.shape = LearningRateShape::constant, .peak = 1e-4, .steps = golden::kSteps},
                     .adamw = {},
                     .grad_clip = 0});
    trainer.open();
    trainer.load(file);
    const std::vector<std::uint16_t> tokens = golden::tokens(golden::kTrainTokens, golden::kTrainSeed);
    Batch batch;
    for (int step = 0; step < steps; ++step) {
      const auto reader = [&](std::int64_t shift) {
        return [&tokens, step, shift](std::int32_t* out, std::int64_t row) {
          const auto* begin = tokens.data() + (step * golden::kRows + row) * golden::kSeqLen + shift;
          std::copy(begin, begin + golden::kSeqLen, out);
        };
      };
      trainer.read_batch(batch, reader(0), reader(1));
      const StepResult result = trainer.step(step, batch);
      worst = std::max(worst, std::abs(result.loss - golden::kTrainLosses[static_cast<std::size_t>(step)]));
    }
  }
  world_->barrier();
  return worst;
}

void Sweep::golden_losses() {
  if (!wanted("golden")) return;
  long process = getpid();
  world_->broadcast_host(&process, sizeof process, 0);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("trainer_sweep." + std::to_string(process) + ".bin")).string();
  if (first()) {
    const std::vector<char> bytes = golden::checkpoint();
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  world_->barrier();
  const int steps = settings_.full ? 10 : 2;
  for (const auto& [schedule, p] : {std::pair{"1f1b", 4}, std::pair{"zb-v", 2}}) {
    const double worst = golden_loss_difference(path, schedule, p, steps);
    if (first()) std::printf("golden losses, %s on %d ranks: at most %.1e away\n", schedule, p, worst);
    report(std::string("golden losses, ") + schedule, worst < golden::kTolerance);
  }
  if (first()) std::filesystem::remove(path);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--full") == 0) settings.full = true;
    if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) settings.only = argv[++i];
  }
  prepare_cuda_environment();
  const MpiSession session;
  Sweep sweep(settings, host_place().index);
  sweep.bits();
  sweep.curves();
  sweep.golden_losses();
  sweep.launches();
  return sweep.finish();
}

// The bitwise contract: every schedule x p x v x m against one rank, many cases in one job; before them, what messages
// over MPI promise (communicator_cases.h).
//
//   mpirun -n 8 test_mpi [--full] [--sharding] [--synchronous-sends] [--delays] [--optimistic] [--only TEXT]
//   test_mpi --local [..]
//
// --full: 20 steps, every v and more micro-batch counts (make check); else 3 steps.
// --synchronous-sends: every send is a rendezvous. --delays: random delays in sends, receives and actions.
// --sharding: replicas x p x --zero x schedules alone, 50 steps (make check). --optimistic: optimistic optimizer steps,
// clipping now and then. --only: cases whose name contains TEXT.
// --local: ranks are threads of this process, without MPI (for ThreadSanitizer). Their sends are always rendezvous.
// --abort-at-end: ends by MPI_Abort(0), since MPI_Finalize of MPICH 4.0.2 hangs over UCX's tcp from 4 ranks on, also in
// a program that does nothing but MPI_Init, MPI_Barrier and MPI_Finalize. Losses, norms and the parameters' hash after
// every step are compared. Rank 0 says every half minute how far it is, and `N passed, N failed` at the end.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "kernels/cpu/mpi_communicator.h"
#include "kernels/injected_delays.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/flushless.h"
#include "test/mpi/communicator_cases.h"
#include "test/pipeline/train/training_runs.h"

namespace {

using namespace train_gpt;
using test::Delays;
using test::Outcome;
using test::Run;

constexpr int kMostRanks = 8;

struct Settings {
  bool full = false;
  bool synchronous = false;
  bool delays = false;
  bool optimistic = false;
  bool sharding = false;
  bool local = false;
  bool abort_at_end = false;
  std::string only;
};

std::string describe(const Run& run) {
  return run.schedule + " p=" + std::to_string(run.ranks) + " v=" + std::to_string(run.chunks) +
         " m=" + std::to_string(run.micro_batches) + (run.head == HeadForm::stored ? " stored head" : "") +
         (run.replicas > 1 ? " replicas=" + std::to_string(run.replicas) : "") +
         (run.zero > 0 ? " zero=" + std::to_string(run.zero) : "") + (run.tied ? "" : " untied") +
         (run.optimizer == OptimizerKind::muon ? " muon" : "");
}

Run make_run(const Settings& settings, const ScheduleRequest& request, const Placement& placement) {
  Run run;
  run.schedule = request.name;
  run.ranks = request.ranks;
  run.chunks = request.chunks;
  run.micro_batches = request.micro_batches;
  run.layers = placement.depth() <= 8 ? 3 : 11;  // 8 or 24 units: one per virtual stage at least
  run.steps = settings.full ? 20 : 3;
  run.validate_every = 2;
  run.groups = placement.kind == Placement::Kind::bidirectional ? 2 : 1;
  if (settings.optimistic) {
    run.optimistic = true;
    run.grad_clip = 1.5;  // exceeded by some steps
    run.steps = settings.full ? 20 : 8;
    run.validate_every = 5;
  } else {
    run.hash_every_step = true;
  }
  return run;
}

// Gradients of a head that is stored arrive last, in messages so short that nothing hides what comes too early. Four
// replicas add in an order that matters.
std::vector<Run> stored_heads_and_replicas(const Settings& settings) {
  std::vector<Run> all;
  for (const char* name : {"zb-h1", "gpipe"}) {
    for (const int p : {2, 4}) {
      const ScheduleRequest request{.name = name, .ranks = p, .micro_batches = 8};
      Run run = make_run(settings, request, make_schedule(request).placement);
      run.head = HeadForm::stored;
      run.heads = 2;
      run.hidden = 8;
      run.vocab = 257;
      all.push_back(run);
    }
  }
  for (const int p : {1, 2}) {
    const ScheduleRequest request{.name = "1f1b", .ranks = p, .micro_batches = 2};
    Run run = make_run(settings, request, make_schedule(request).placement);
    run.replicas = 4;
    run.groups = 4;
    all.push_back(run);
  }
  return all;
}

// Without a flush: as many micro-batches as run ahead, a few more, and twice the ranks.
std::vector<Run> without_a_flush(const Settings& settings) {
  std::vector<Run> all;
  if (settings.optimistic) return all;
  for (const std::string& name : flushless_names()) {
    for (const int p : {2, 3, 4, kMostRanks}) {
      for (int m = std::max(1, p - 1); m <= 2 * p; m += settings.full ? 1 : p) {
        Run run;
        run.schedule = name;
        run.ranks = p;
        run.micro_batches = m;
        run.steps = settings.full ? 20 : 5;
        run.validate_every = 3;
        run.groups = 1;
        if (stashes_weights(name)) {
          run.tied = false;
          run.grad_clip = 0;
        }
        all.push_back(run);
      }
    }
  }
  return all;
}

// Runs with replicas and shards: 16 micro-batches of all replicas in 8 groups, so that one rank with as many has the
// same bits.
Run sharded(const Settings& settings, Run run) {
  constexpr int kMicroBatches = 16;
  run.micro_batches = kMicroBatches / run.replicas;
  run.groups = 8;
  run.steps = settings.sharding ? 50 : 3;
  run.hash_every_step = true;
  run.validate_every = 2;
  if (run.schedule == "breadth-first") {  // a stage per unit, of so many that windows pay
    run.layers = 11;
    run.chunks = 24 / run.ranks;
  }
  return run;
}

// Sections that are cut unevenly, used by two stages, gathered again and again, or not worth a window.
std::vector<Run> edges_of_shards(const Settings& settings) {
  std::vector<Run> all;
  for (const Run& run : std::vector<Run>{
           {.schedule = "gpipe", .ranks = 1, .replicas = 8, .zero = 3},
           {.schedule = "1f1b", .ranks = 3, .replicas = 2, .zero = 1},
           {.schedule = "interleaved", .ranks = 2, .chunks = 4, .replicas = 2, .zero = 3},
           {.schedule = "zb-h1", .ranks = 2, .replicas = 2, .zero = 2},
           {.schedule = "zb-v", .ranks = 2, .replicas = 4, .zero = 3},
           {.schedule = "dualpipe", .ranks = 2, .replicas = 4, .zero = 3},
           {.schedule = "1f1b",
           .ranks = 3,
           .replicas = 2,
           .zero = 3,
           .partition = {1, 6, 1},
           .optimizer = OptimizerKind::muon},
           {.schedule = "breadth-first", .ranks = 1, .replicas = 2, .zero = 2},
           {.schedule = "breadth-first", .ranks = 1, .replicas = 4, .zero = 3},
           {.schedule = "breadth-first", .ranks = 2, .replicas = 4, .zero = 3, .head = HeadForm::stored},
           {.schedule = "breadth-first", .ranks = 3, .replicas = 2, .zero = 3, .tied = false},
           {.schedule = "breadth-first", .ranks = 2, .replicas = 2, .zero = 3, .optimizer = OptimizerKind::muon},
       }) {
    all.push_back(sharded(settings, run));
  }
  return all;
}

std::vector<Run> matrix_of_shards(const Settings& settings) {
  std::vector<Run> all;
  for (const char* schedule : {"1f1b", "interleaved", "zb-h1", "zb-v", "breadth-first", "dualpipe"}) {
    for (const int d : {1, 2, 4}) {
      for (const int p : {1, 2, 3}) {
        for (int zero = 0; zero <= (d > 1 ? 3 : 0); ++zero) {
          Run run{.schedule = schedule, .ranks = p, .replicas = d, .zero = zero};
          run = sharded(settings, run);
          if (!violation({.name = schedule, .ranks = p, .micro_batches = run.micro_batches, .chunks = run.chunks}))
            all.push_back(run);
        }
      }
    }
  }
  return all;
}

std::vector<Run> cases(const Settings& settings) {
  std::vector<Run> all;
  if (settings.sharding) {
    all = matrix_of_shards(settings);
    std::erase_if(all, [&](const Run& run) { return describe(run).find(settings.only) == std::string::npos; });
    return all;
  }
  const auto micro_batches = settings.full ? std::vector<int>{1, 2, 3, 5, 8, 16} : std::vector<int>{1, 3, 8};
  for (const std::string& name : schedule_names()) {
    const auto chunks = takes_chunks(name) && settings.full ? std::vector<int>{1, 2, 3} : std::vector<int>{0};
    for (const int p : {1, 2, 3, 4, 6, kMostRanks}) {
      for (const int m : micro_batches) {
        for (const int v : chunks) {
          const ScheduleRequest request{.name = name, .ranks = p, .micro_batches = m, .chunks = v};
          if (violation(request)) continue;
          all.push_back(make_run(settings, request, make_schedule(request).placement));
        }
      }
    }
  }
  for (const Run& run : stored_heads_and_replicas(settings)) all.push_back(run);
  for (const Run& run : without_a_flush(settings)) all.push_back(run);
  for (const Run& run : edges_of_shards(settings)) {
    if (!settings.optimistic) all.push_back(run);
  }
  std::erase_if(all, [&](const Run& run) { return describe(run).find(settings.only) == std::string::npos; });
  return all;
}

// The same model and batch on one rank, or, where the number of ranks tells, on threads; of every kind one run is made.
class OneRank {
 public:
  const Outcome& outcome(const Run& run) {
    const bool delayed = is_flushless(run.schedule);
    const int ranks = stashes_weights(run.schedule) ? run.ranks : 1;
    Outcome& known = known_[{run.micro_batches * run.replicas, run.groups, run.layers, run.hidden, run.steps, run.tied,
                             run.optimizer, run.validate_every, delayed, ranks}];
    if (!known.hash.empty()) return known;
    Run reference = run;
    reference.schedule = delayed ? run.schedule : "gpipe";
    reference.ranks = ranks;
    reference.chunks = 0;
    reference.head = HeadForm::streamed;
    reference.replicas = 1;  // groups count those of all replicas
    reference.micro_batches = run.micro_batches * run.replicas;
    reference.zero = 0;
    reference.partition = {};
    reference.optimistic = false;
    return known = test::train(reference);
  }

 private:
  std::map<std::tuple<int, int, std::int64_t, std::int64_t, int, bool, OptimizerKind, int, bool, int>, Outcome> known_;
};

// Counts cases and says how far it is. A case that hangs ends the program with its name.
class Progress {
 public:
  Progress(std::size_t cases, bool speaks) : cases_(cases), speaks_(speaks) {
    std::signal(SIGALRM, [](int) {
      (void)!write(STDERR_FILENO, name_, std::strlen(name_));
      _exit(1);
    });
  }
  void begin(const Run& run) {
    constexpr unsigned kHangs = 600;  // seconds: a case takes a few at most
    std::snprintf(name_, sizeof name_, "no end in sight: %s\n", describe(run).c_str());
    alarm(kHangs);
  }
  void end(const Run& run, bool good) {
    (good ? passed_ : failed_)++;
    if (!speaks_) return;
    if (!good) std::printf("differs from one rank: %s\n", describe(run).c_str());
    const auto now = std::chrono::steady_clock::now();
    if (now - spoke_ < std::chrono::seconds(30)) return;
    spoke_ = now;
    std::printf("%d of %zu cases after %lld s\n", passed_ + failed_, cases_,
                static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(now - begin_).count()));
    std::fflush(stdout);
  }
  int finish() const {
    alarm(0);
    if (speaks_) std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  static inline char name_[128];
  std::size_t cases_;
  bool speaks_;
  int passed_ = 0;
  int failed_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point spoke_ = begin_;
};

// Runs one case on the first run.ranks ranks of `world`; rank 0 gets the outcome.
Outcome run_case(Communicator& world, const Run& run, const Delays& delays) {
  const bool takes_part = world.rank() < run.ranks * run.replicas;
  const auto group = world.split(takes_part ? 1 : 0, world.rank());
  Outcome outcome;
  if (takes_part) outcome = test::train_rank(*group, run, delays);
  world.barrier();
  return outcome;
}

// `world` null: local ranks.
int sweep(const Settings& settings, const Delays& delays, Communicator* world) {
  const bool first = world == nullptr || world->rank() == 0;
  const std::vector<Run> all = cases(settings);
  if (all.empty()) {
    if (first) std::fprintf(stderr, "test_mpi: no case is called '%s', as zb-v p=4 is one\n", settings.only.c_str());
    return 2;
  }
  OneRank one_rank;
  Progress progress(all.size(), first);
  int redone = 0;
  for (const Run& run : all) {
    progress.begin(run);
    const Outcome expected = first ? one_rank.outcome(run) : Outcome{};
    if (world != nullptr) world->barrier();
    const bool too_large = run.ranks * run.replicas > kMostRanks;  // runs as threads of the first rank
    Outcome actual;
    if (world != nullptr && !too_large) actual = run_case(*world, run, delays);
    if (world == nullptr || (too_large && first)) actual = test::train(run, delays);
    if (world != nullptr) world->barrier();
    redone += actual.redone;
    progress.end(run, !first || actual == expected);
  }
  if (first && settings.optimistic) std::printf("%d steps were taken back\n", redone);
  return progress.finish();
}

// Says what is wrong on each rank. 1 on all of them if it is anything.
int check_messages() {
  const auto world = make_mpi_communicator();
  const std::vector<std::string> wrong = test::wrong_with_messages(*world);
  for (const std::string& what : wrong) std::fprintf(stderr, "%s\n", what.c_str());
  std::vector<double> all = {static_cast<double>(wrong.size())};
  world->all_reduce_host(all);
  if (world->rank() == 0) std::printf(all[0] == 0 ? "1 passed, 0 failed\n" : "0 passed, 1 failed\n");
  return all[0] == 0 ? 0 : 1;
}

int sweep_over_mpi(const Settings& settings, const Delays& delays) {
  const MpiSession session;
  const auto world = inject_delays(make_mpi_communicator({.synchronous_sends = settings.synchronous}),
                                   {.message = delays.message, .receive = delays.receive});
  if (world->size() == kMostRanks) {
    int status = settings.only.empty() || settings.only == "messages" ? check_messages() : 0;
    if (settings.only != "messages") status = std::max(status, sweep(settings, delays, world.get()));
    if (!settings.abort_at_end) return status;
    std::fflush(stdout);
    world->barrier();
    if (world->rank() == 0) world->abort(status);
    while (true) pause();
  }
  std::fprintf(stderr, "test_mpi: %d ranks: start it with mpirun -n %d, or with --local\n", world->size(), kMostRanks);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--full") {
      settings.full = true;
    } else if (option == "--synchronous-sends") {
      settings.synchronous = true;
    } else if (option == "--delays") {
      settings.delays = true;
    } else if (option == "--optimistic") {
      settings.optimistic = true;
    } else if (option == "--sharding") {
      settings.sharding = true;
    } else if (option == "--local") {
      settings.local = true;
    } else if (option == "--abort-at-end") {
      settings.abort_at_end = true;
    } else if (option == "--only" && i + 1 < argc) {
      settings.only = argv[++i];
    } else {
      std::fprintf(stderr, "test_mpi: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  const Delays delays = settings.delays ? Delays{.message = 3, .receive = 2, .action = 2} : Delays{};
  return settings.local ? sweep(settings, delays, nullptr) : sweep_over_mpi(settings, delays);
}

// The bitwise contract over MPI: every schedule x p x m on sub-communicators of one job, against one rank.
//
//   mpirun -n 8 test_mpi [--full] [--synchronous-sends] [--delays] [--optimistic]
//
// --full: 20 steps and more micro-batch counts (make check); else 3 steps.
// --synchronous-sends: every send is a rendezvous. --delays: random delays in messages and actions.
// --optimistic: optimistic optimizer steps, clipping now and then.
// Prints `N passed, N failed` on rank 0.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "kernels/cpu/mpi_communicator.h"
#include "kernels/injected_delays.h"
#include "pipeline/schedule_catalog.h"
#include "test/pipeline/training_runs.h"

namespace {

using namespace train_gpt;
using test::Delays;
using test::Outcome;
using test::Run;

struct Settings {
  bool full = false;
  bool synchronous = false;
  bool delays = false;
  bool optimistic = false;
};

std::vector<Run> cases(const Settings& settings, int most_ranks) {
  std::vector<Run> all;
  const std::vector<int> micro_batches =
      settings.full ? std::vector<int>{1, 2, 3, 5, 8, 16} : std::vector<int>{1, 3, 8};
  for (const std::string& name : schedule_names()) {
    for (const int p : {1, 2, 3, 4, 6, 8}) {
      for (const int m : micro_batches) {
        for (const int v : takes_chunks(name) && settings.full ? std::vector<int>{1, 2, 3} : std::vector<int>{0}) {
          ScheduleRequest request{.name = name, .ranks = p, .micro_batches = m, .chunks = v};
          if (p > most_ranks || violation(request)) continue;
          const Schedule schedule = make_schedule(request);
          if (schedule.placement.depth() > 8) continue;  // the model has 8 units
          Run run;
          run.schedule = name;
          run.ranks = p;
          run.chunks = v;
          run.micro_batches = m;
          run.steps = settings.full ? 20 : 3;
          run.validate_every = 2;
          if (schedule.placement.kind == Placement::Kind::bidirectional) run.groups = 2;
          if (settings.optimistic) {
            run.optimistic = true;
            run.grad_clip = 1.5;  // exceeded by some steps
            run.steps = 8;
            run.validate_every = 5;
          }
          all.push_back(run);
        }
      }
    }
  }
  return all;
}

std::string describe(const Run& run) {
  return run.schedule + " p=" + std::to_string(run.ranks) + " v=" + std::to_string(run.chunks) +
         " m=" + std::to_string(run.micro_batches);
}

// Runs one case on the first run.ranks ranks of `world`; rank 0 gets the outcome.
Outcome run_case(Communicator& world, const Run& run, const Delays& delays) {
  const bool takes_part = world.rank() < run.ranks * run.replicas;
  const auto group = world.split(takes_part ? 1 : 0, world.rank());
  Outcome outcome;
  if (takes_part) outcome = test::train_rank(*group, run, delays);
  world.barrier();
  return outcome;
}

int sweep(const Settings& settings) {
  const Delays delays = settings.delays ? Delays{.message = 3, .action = 2} : Delays{};
  const auto world =
      inject_delays(make_mpi_communicator({.synchronous_sends = settings.synchronous}), {.message = delays.message});
  std::map<std::pair<int, int>, Outcome> one_rank;  // by (m, groups)
  int passed = 0;
  int failed = 0;
  int redone = 0;
  for (const Run& run : cases(settings, world->size())) {
    Outcome& expected = one_rank[{run.micro_batches, run.groups}];
    if (expected.hash.empty() && world->rank() == 0) {
      Run reference = run;
      reference.schedule = "gpipe";
      reference.ranks = 1;
      reference.chunks = 0;
      reference.optimistic = false;
      expected = test::train(reference);
    }
    world->barrier();
    const Outcome actual = run_case(*world, run, delays);
    if (world->rank() != 0) continue;
    const bool equal = actual == expected;
    redone += actual.redone;
    (equal ? passed : failed)++;
    if (!equal) std::printf("differs from one rank: %s\n", describe(run).c_str());
  }
  if (world->rank() == 0 && settings.optimistic) std::printf("%d steps were taken back\n", redone);
  if (world->rank() == 0) std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--full") == 0) settings.full = true;
    if (std::strcmp(argv[i], "--synchronous-sends") == 0) settings.synchronous = true;
    if (std::strcmp(argv[i], "--delays") == 0) settings.delays = true;
    if (std::strcmp(argv[i], "--optimistic") == 0) settings.optimistic = true;
  }
  const MpiSession session;
  return sweep(settings);
}

// Limits that are met exactly, and by how much they are not.
#include "commands/run/setup.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>

#include "commands/run/checkpoints.h"
#include "pipeline/schedule/catalog.h"
#include "test/commands/program.h"
#include "test/refused.h"

namespace train_gpt::test {
namespace {

Plan two_ranks() {
  PlanRequest request;
  request.model = {.layers = 3, .heads = 2, .hidden = 8, .vocab = 257, .max_seq_len = 16};
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = 2};
  request.schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 2});
  request.partition = uniform_partition(request.model, 2);
  return make_plan(request);
}

TEST(HostMemory, IsThatOfAllItsRanksTogether) {
  const Plan plan = two_ranks();
  const std::int64_t together = plan.ranks[0].total_bytes() + plan.ranks[1].total_bytes();
  EXPECT_NO_THROW(check_host_memory(plan, {0, 1}, together));
  EXPECT_REFUSED(check_host_memory(plan, {0, 1}, together - 1), "the 2 ranks of one host need");
  // Replicas take the plans of the pipeline's ranks again.
  EXPECT_NO_THROW(check_host_memory(plan, {1, 3}, 2 * plan.ranks[1].total_bytes()));
  EXPECT_NO_THROW(check_host_memory(plan, {0, 1}, 0)) << "not known";
}

TEST(HostMemory, ALimitMayBeMetExactly) {
  const Plan plan = two_ranks();
  const bool first = plan.ranks[0].total_bytes() > plan.ranks[1].total_bytes();
  const std::int64_t most = plan.ranks[first ? 0 : 1].total_bytes();
  ChoiceRequest request;
  request.base = plan.request;
  request.ranks = 2;
  request.costs = estimated_cost_model(plan.request.model, plan.request.batch.seq_len, 2);
  request.schedule = plan.request.schedule;
  EXPECT_NO_THROW(check_memory_limit(plan, request, most));
  EXPECT_REFUSED(check_memory_limit(plan, request, most - 1), first ? "rank 0 needs " : "rank 1 needs ",
                 std::to_string(most));
}

// A run's folder without a model.bin of its own stands for the checkpoint that is furthest on, by the rule of --resume.
TEST(InitFile, IsThatOfTheCompleteCheckpointThatIsFurthestOn) {
  const Folder folder;
  Options options;
  options.model.init_file = folder.path();
  const auto add = [&](const std::string& name, std::int64_t step, const std::string& manifest) {
    const std::string checkpoint = folder / ("checkpoints/" + name);
    std::filesystem::create_directories(checkpoint);
    write_file(checkpoint + "/model.bin", "model", 5);
    CheckpointManifest of_step;
    of_step.step = step;
    const std::string text = manifest.empty() ? to_json(of_step) : manifest;
    if (text != "none") write_file(checkpoint + "/manifest.json", text.data(), text.size());
  };
  const auto found = [&] { return std::filesystem::path(init_model_file(options)).parent_path().filename().string(); };
  add("step-30", 30, "none");
  EXPECT_REFUSED(init_model_file(options), "nor a complete checkpoint");
  Options elsewhere;
  elsewhere.model.init_file = folder / "absent";
  EXPECT_REFUSED(init_model_file(elsewhere), "--init", "absent", "no such file or folder");
  add("step-9", 9, "");
  EXPECT_EQ(found(), "step-9") << "step-30 has no manifest: it was not completed";
  add("step-10", 10, "");
  EXPECT_EQ(found(), "step-10") << "by the number, not the name";
  add("step-11", 11, "{}");
  add("step-12.partial", 12, "");
  add("best", 99, "");
  EXPECT_EQ(found(), "step-10");
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "checkpoints/step-10");
  write_file(folder / "model.bin", "model", 5);
  EXPECT_EQ(init_model_file(options), folder / "model.bin") << "the run is over";
}

// Without --threads and OMP_NUM_THREADS.
TEST(Resources, RanksOfAHostShareItsCores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  const int cores = CPU_COUNT(&set);
  const int each = std::max(1, cores / 2);
  const Folder folder;
  const ProgramRun run = run_program(
      2, "profile --layers 2 --heads 1 --hidden 8 --vocab 300 --seq-len 8 --max-seq-len 8 --micro-batch-size 1",
      {.environment = "-u OMP_NUM_THREADS"});
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_NE(run.output.find("2 ranks on this host x " + std::to_string(each) + (each == 1 ? " thread" : " threads")),
            std::string::npos)
      << run.output;
}

}  // namespace
}  // namespace train_gpt::test

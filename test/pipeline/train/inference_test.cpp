// A trainer that does not train: it generates, scores rows, and measures its stages.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/cpu_device.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/train/trainer.h"
#include "test/pipeline/train/training_runs.h"

namespace train_gpt::test {
namespace {

using TrainingRun = train_gpt::test::Run;

constexpr std::size_t kContext = 16;  // of the models of training_runs.h
constexpr int kVocab = 131;

// Calls `look` on every rank, at the end of the run.
void with_trainer(TrainingRun run, const std::function<void(Trainer&)>& look) {
  run.after_training = look;
  train(run);
}

std::vector<std::int32_t> generated(Trainer& trainer, const std::vector<std::int32_t>& prompt, const Sampling& sampling,
                                    std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  trainer.generate(prompt, 12, sampling, seed, [&](std::int32_t id) {
    ids.push_back(id);
    return true;
  });
  return ids;
}

TEST(Generation, SamplingAndSeedReachTheDraw) {
  with_trainer({.schedule = "1f1b", .ranks = 2}, [](Trainer& trainer) {
    const std::vector<std::int32_t> prompt = {5, 7, 11};
    const auto greedy = generated(trainer, prompt, {.temperature = 0}, 1);
    EXPECT_EQ(greedy.size(), 12U);
    EXPECT_EQ(generated(trainer, prompt, {.temperature = 0}, 2), greedy) << "nothing is drawn";
    EXPECT_EQ(generated(trainer, prompt, {.temperature = 1e-4}, 2), greedy);
    EXPECT_EQ(generated(trainer, prompt, {.temperature = 50, .top_k = 1}, 2), greedy);
    EXPECT_EQ(generated(trainer, prompt, {.temperature = 50, .top_p = 1e-9}, 2), greedy);
    const auto hot = generated(trainer, prompt, {.temperature = 50}, 1);
    EXPECT_NE(hot, greedy);
    EXPECT_EQ(generated(trainer, prompt, {.temperature = 50}, 1), hot);
    EXPECT_NE(generated(trainer, prompt, {.temperature = 50}, 2), hot);
    EXPECT_NE(std::count(hot.begin(), hot.end(), hot.front()), 12) << "every token is drawn anew";
  });
}

TEST(Generation, ALongPromptCountsFromItsEnd) {
  // Initial parameters: a few steps lead to one and the same token everywhere.
  with_trainer({.schedule = "gpipe", .ranks = 2, .stop_after = 0}, [](Trainer& trainer) {
    std::vector<std::int32_t> prompt;
    for (int i = 0; i < 40; ++i) prompt.push_back(i * 37 % kVocab);
    const std::vector<std::int32_t> end(prompt.end() - kContext, prompt.end());
    const std::vector<std::int32_t> beginning(prompt.begin(), prompt.begin() + kContext);
    const Sampling cool = {.temperature = 0.02};  // so that the context decides more than the draw
    const auto whole = generated(trainer, prompt, cool, 3);
    EXPECT_EQ(whole, generated(trainer, end, cool, 3));
    EXPECT_NE(whole, generated(trainer, beginning, cool, 3));
  });
}

// A row whose targets are all left out has no loss, and the rows together have that of validation.
TEST(RowLosses, AreThoseOfTheRowsWithTargets) {
  with_trainer({.schedule = "1f1b", .ranks = 2, .micro_batches = 2, .rows = 2}, [](Trainer& trainer) {
    const ReadRow inputs = [](std::int32_t* out, std::int64_t row) {
      for (std::size_t t = 0; t < kContext; ++t)
        out[t] = static_cast<std::int32_t>(row * 31 + static_cast<int>(t) * 7) % kVocab;
    };
    Batch batch;
    trainer.read_batch(batch, inputs, inputs);
    const std::vector<double> all = trainer.row_losses(batch);
    ASSERT_EQ(all.size(), 4U);
    const double mean = trainer.validate(batch);
    EXPECT_NEAR(all[0] + all[1] + all[2] + all[3], mean * 4 * kContext, 1e-6);
    for (std::size_t wanted = 0; wanted < 4; ++wanted) {
      trainer.read_batch(batch, inputs, [&](std::int32_t* out, std::int64_t row) {
        inputs(out, row);
        if (row != static_cast<std::int64_t>(wanted)) std::fill_n(out, kContext, -1);
      });
      const std::vector<double> losses = trainer.row_losses(batch);
      for (std::size_t row = 0; row < 4; ++row) EXPECT_EQ(losses[row], row == wanted ? all[row] : 0) << row;
    }
  });
}

// With a learning rate of 0 the same batch again has the same gradients, and nothing of the one before.
TEST(Gradients, AreThoseOfTheirStepAlone) {
  for (const HeadForm head : {HeadForm::streamed, HeadForm::stored}) {
    with_trainer({.schedule = "zb-h1", .ranks = 2, .head = head, .peak_learning_rate = 0}, [](Trainer& trainer) {
      const ReadRow row = [](std::int32_t* out, std::int64_t r) {
        for (std::size_t t = 0; t < kContext; ++t)
          out[t] = static_cast<std::int32_t>((7 * r + 3 * static_cast<int>(t)) % kVocab);
      };
      Batch batch;
      trainer.read_batch(batch, row, row);
      const StepResult first = trainer.step(0, batch), again = trainer.step(1, batch);
      EXPECT_EQ(first.learning_rate, 0);
      EXPECT_EQ(first.loss, again.loss);
      EXPECT_EQ(first.grad_norm, again.grad_norm);
      EXPECT_GT(first.grad_norm, 0);
    });
  }
}

TEST(MeasuredStages, TakeTimeOnEveryRank) {
  with_trainer({.schedule = "zb-v", .ranks = 2}, [](Trainer& trainer) {
    const StageCosts costs = trainer.measure_stages();
    ASSERT_EQ(costs.forward.size(), 4U);
    for (const auto* pass : {&costs.forward, &costs.weight}) {
      for (const double ms : *pass) EXPECT_GT(ms, 0);
    }
    for (std::size_t stage = 1; stage < 4; ++stage) EXPECT_GT(costs.input[stage], 0);
  });
}

// ---- memory that is not there ------------------------------------------------------------------------------------

class FullDevice : public cpu::CpuDevice {
 public:
  explicit FullDevice(int allocations) : CpuDevice(1), left_(allocations) {}
  void* allocate(std::int64_t bytes) override {
    if (left_-- == 0) throw std::runtime_error("no more");
    return CpuDevice::allocate(bytes);
  }

 private:
  int left_;
};

TEST(RankMemory, NamesWhatFoundNoRoom) {
  PlanRequest request;
  request.model = {.layers = 3, .heads = 2, .hidden = 8, .vocab = 257, .max_seq_len = 16};
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = 2};
  request.schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 2});
  request.partition = uniform_partition(request.model, 2);
  const Plan plan = make_plan(request);
  for (std::size_t k = 0; k < plan.ranks[1].memory.size(); ++k) {
    const MemoryLine& line = plan.ranks[1].memory[k];
    FullDevice device(static_cast<int>(k));
    try {
      const RankMemory memory(device, plan, 1);
      ADD_FAILURE() << line.name << " found room";
    } catch (const std::runtime_error& error) {
      const std::string expected = "rank 1 has no " + format_bytes(line.bytes) + " for " + line.name +
                                   " (its plan needs " + format_bytes(plan.ranks[1].total_bytes()) +
                                   " in all): no more";
      EXPECT_TRUE(std::string(error.what()).starts_with(expected)) << error.what();
    }
  }
}

}  // namespace
}  // namespace train_gpt::test

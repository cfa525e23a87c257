// The choices of choose() for given costs: cuts, forms of the head, recomputation, schedules.
#include "pipeline/planner/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>

#include "pipeline/planner/choose_schedule.h"
#include "pipeline/planner/recompute.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/check_schedule.h"
#include "test/refused.h"

namespace train_gpt {
namespace {

ChoiceRequest request_for(const std::string& schedule, int p, int m, const ModelConfig& model = preset("d6")) {
  ChoiceRequest request;
  request.base.model = model;
  request.base.batch = {.rows = 2, .seq_len = 128, .micro_batches = m};
  request.ranks = p;
  request.costs = estimated_cost_model(model, 128, p);
  if (!schedule.empty()) {
    request.schedule = make_schedule({.name = schedule, .ranks = p, .micro_batches = m});
    if (request.schedule->placement.kind == Placement::Kind::bidirectional) request.base.batch.groups = 2;
  }
  return request;
}

std::int64_t largest(const Plan& plan) {
  std::int64_t bytes = 0;
  for (const RankPlan& rank : plan.ranks) bytes = std::max(bytes, rank.total_bytes());
  return bytes;
}

int recomputed(const Choice& choice) {
  const std::vector<bool>& units = choice.plan.request.recompute;
  return static_cast<int>(std::count(units.begin(), units.end(), true));
}

TEST(Choose, CutsByCostAndSaysWhatItGains) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"}) {
    const ChoiceRequest request = request_for(schedule, 4, 8, preset("d12"));
    const Choice choice = choose(request);
    ASSERT_TRUE(choice.uniform_makespan.has_value()) << schedule;
    EXPECT_LT(choice.predicted.makespan, *choice.uniform_makespan) << schedule;  // the head is heavy
    EXPECT_NE(beside_uniform_cut(choice.predicted.makespan, choice.uniform_makespan).find("a uniform cut"),
              std::string::npos);
  }
}

// Between two parts of a head more is sent than between layers: prediction and executor have the same sizes.
TEST(Choose, MessagesAreAsLongAsThePlanSendsThem) {
  for (const char* schedule : {"1f1b", "zb-v"}) {
    ChoiceRequest request = request_for(schedule, 2, 4);
    request.cut = ChoiceRequest::Cut::list;
    request.partition = std::string(schedule) == "zb-v" ? Partition{3, 15, 10, 10} : Partition{18, 20};
    request.costs.links.bandwidth = {1};
    const Choice choice = choose(request);
    const Placement& placement = choice.plan.request.schedule.placement;
    for (const RankPlan& rank : choice.plan.ranks) {
      for (const StagePlan& stage : rank.stages) {
        const auto s = static_cast<std::size_t>(stage.stage);
        const int previous = placement.stages[s].previous;
        if (previous < 0 || placement.stages[static_cast<std::size_t>(previous)].rank == rank.rank) continue;
        EXPECT_EQ(choice.costs.activation[s].bytes, static_cast<double>(stage.before.of(ForwardUse::training)));
        EXPECT_EQ(choice.costs.gradient[s].bytes, static_cast<double>(stage.before.backward));
        EXPECT_DOUBLE_EQ(choice.costs.activation[s].transfer, choice.costs.activation[s].bytes / 1e6);
      }
    }
  }
}

TEST(Choose, IsNeverWorseThanUniform) {
  ModelConfig model = preset("d6");
  for (const std::int64_t vocab : {256, 4096, 50257}) {
    model.vocab = vocab;
    for (const int p : {2, 3, 5}) {
      ChoiceRequest request = request_for("1f1b", p, 6, model);
      request.head = HeadForm::streamed;
      const double measured = choose(request).predicted.makespan;
      request.cut = ChoiceRequest::Cut::uniform;
      EXPECT_LE(measured, choose(request).predicted.makespan);
    }
  }
}

TEST(Choose, KeepsListsAsGivenAndRefusesWrongOnes) {
  ChoiceRequest request = request_for("1f1b", 2, 4);
  request.cut = ChoiceRequest::Cut::list;
  request.partition = {3, 35};
  EXPECT_EQ(choose(request).plan.request.partition, request.partition);
  request.partition = {3, 10};
  EXPECT_REFUSED(choose(request), "--partition 3,10");
}

// Six layers of which the head, one shard, weighs as much as three.
const ModelConfig kOneShard{.layers = 6, .heads = 2, .hidden = 48, .vocab = 2048, .max_seq_len = 128};

TEST(Choose, StoresScoresOnlyWhereThatIsWorthItsMemory) {
  // A head that is more than a rank's share and cannot be cut: only a W that can be put off fills the bubble.
  ModelConfig model = kOneShard;
  const Choice deferred = choose(request_for("zb-h1", 4, 8, model));
  EXPECT_EQ(deferred.plan.request.head, HeadForm::stored);
  model.vocab = 256;
  EXPECT_EQ(choose(request_for("zb-h1", 4, 8, model)).plan.request.head, HeadForm::streamed);
}

// A head that is half of the model: its shards go where the time is.
TEST(Choose, SpreadsTheHeadOverRanks) {
  for (const char* schedule : {"1f1b", "zb-h1", "interleaved", "zb-v", "dualpipe"}) {
    const ChoiceRequest request = request_for(schedule, 4, 8);
    const Choice spread = choose(request);
    const int ranks = static_cast<int>(std::count_if(spread.plan.ranks.begin(), spread.plan.ranks.end(),
                                                     [](const RankPlan& r) { return r.targets.count() > 0; }));
    EXPECT_GE(ranks, 2) << schedule;
    // No rank does more than the average by a unit's work; the head whole would be more than twice the average.
    const UnitCosts& units = request.costs.units;
    EXPECT_GT(units.streamed_head.forward, 1.5 * 3);
    EXPECT_LT(spread.predicted.ideal, 8 * 3 * 1.15) << schedule;
  }
}

// d12 on 4 ranks, 16 micro-batches; even work would be 48 ms. With the head whole it was 61.7.
TEST(Choose, ComesCloseToEvenWorkWithAVocabularyOf50257) {
  ModelConfig model = preset("d12");
  model.vocab = 50257;
  ChoiceRequest request = request_for("", 4, 16, model);
  request.base.batch.seq_len = 256;
  request.costs = estimated_cost_model(model, 256, 4);
  request.search_beyond_names = false;
  EXPECT_LT(choose(request).predicted.makespan, 50.5);
  request.costs.links.latency = {0.1};
  EXPECT_LT(choose(request).predicted.makespan, 51);
  request.schedule = make_schedule({.name = "1f1b", .ranks = 4, .micro_batches = 16});
  request.costs.links.latency = {0};
  EXPECT_LT(choose(request).predicted.makespan, 58.8);
}

TEST(Choose, RecomputesAsFewUnitsAsFitTheLimit) {
  ChoiceRequest request = request_for("gpipe", 2, 8);
  request.head = HeadForm::streamed;
  request.cut = ChoiceRequest::Cut::uniform;
  const Choice free = choose(request);
  EXPECT_EQ(recomputed(free), 0);
  request.recompute = ChoiceRequest::Recompute::automatic;
  request.memory_limit = largest(free.plan) * 8 / 10;
  const Choice limited = choose(request);
  EXPECT_TRUE(limited.fits);
  EXPECT_LE(largest(limited.plan), request.memory_limit);
  ASSERT_GT(recomputed(limited), 0);
  EXPECT_GT(limited.predicted.makespan, free.predicted.makespan);
  // One unit less of those it recomputes on the fullest rank, and the plan no longer fits.
  for (std::size_t u = 0; u < limited.plan.request.recompute.size(); ++u) {
    if (!limited.plan.request.recompute[u]) continue;
    PlanRequest one_less = limited.plan.request;
    one_less.recompute[u] = false;
    EXPECT_GT(largest(make_plan(one_less)), request.memory_limit) << "unit " << u;
  }
  request.recompute = ChoiceRequest::Recompute::none;
  EXPECT_FALSE(choose(request).fits);
  request.memory_limit = largest(free.plan);
  EXPECT_TRUE(choose(request).fits) << "a limit that is met exactly";
}

// The unit that saves most comes first, and a limit that it meets exactly is met.
TEST(RecomputeToFit, TakesTheUnitsThatSaveMostFirst) {
  PlanRequest request = request_for("gpipe", 1, 8).base;
  request.schedule = make_schedule({.name = "gpipe", .ranks = 1, .micro_batches = 8});
  request.partition = uniform_partition(request.model, 1);
  const int units = unit_count(request.model);
  std::vector<bool> best;
  std::int64_t least = largest(make_plan(request));
  for (int u = 1; u < first_head_unit(request.model); ++u) {
    request.recompute.assign(static_cast<std::size_t>(units), false);
    request.recompute[static_cast<std::size_t>(u)] = true;
    const std::int64_t bytes = largest(make_plan(request));
    if (bytes >= least) continue;
    least = bytes;
    best = request.recompute;
  }
  request.recompute.clear();
  const auto found = recompute_to_fit(request, std::vector(request.schedule.lists.size(), least));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, best);
}

TEST(PartitionTable, HasTheTimesOfEveryRank) {
  Costs given;
  given.forward = {1, 3};
  given.input = {2};
  given.weight = {4};
  ChoiceRequest request = request_for("1f1b", 2, 8);
  request.costs = given_cost_model(given, request.base.model, 128, 2);
  const Choice choice = choose(request);
  const std::string table = partition_table(choice, request.costs);
  std::istringstream lines(table.substr(table.find('\n') + 1));
  std::string line;
  std::getline(lines, line);
  for (const std::vector<std::string>& expected :
       {std::vector<std::string>{"1.00", "2.00", "4.00", "7.00", "43.8%", "0"},
        std::vector<std::string>{"3.00", "2.00", "4.00", "9.00", "56.2%", "0"}}) {
    std::getline(lines, line);
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    EXPECT_EQ(std::vector<std::string>(words.begin() + 2, words.begin() + 8), expected) << table;
  }
}

TEST(PartitionTable, SaysWhatAUniformCutTakesMore) {
  EXPECT_EQ(beside_uniform_cut(100, 150), "; a uniform cut: 150.0 ms, which is 50.0% more");
  EXPECT_EQ(beside_uniform_cut(100, {}), "");
}

TEST(Choose, GivesStagesTheUnitsThatARecomputeListNames) {
  ChoiceRequest request = request_for("1f1b", 4, 8, kOneShard);  // the head weighs more than a quarter
  const Partition free = choose(request).plan.request.partition;
  EXPECT_EQ(free.back(), 1);
  request.recompute = ChoiceRequest::Recompute::list;
  request.recompute_counts = {0, 1, 0, 2};
  const PlanRequest plan = choose(request).plan.request;
  EXPECT_EQ(plan.partition.back(), 3);
  const std::vector<UnitRange> ranges = unit_ranges(plan.schedule.placement, plan.partition);
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    EXPECT_EQ(std::count(plan.recompute.begin() + ranges[s].first, plan.recompute.begin() + ranges[s].last, true),
              request.recompute_counts[s]);
  }
  request.recompute_counts = {9, 0, 0, 9};
  EXPECT_REFUSED(choose(request), "--recompute 9,0,0,9", "has only");
  request.recompute_counts = {1, 1};
  EXPECT_REFUSED(choose(request), "--recompute 1,1", "4 numbers");
}

TEST(Choose, SaysWhenNothingFits) {
  ChoiceRequest request = request_for("1f1b", 2, 4);
  request.recompute = ChoiceRequest::Recompute::automatic;
  request.memory_limit = 1 << 20;
  EXPECT_FALSE(choose(request).fits);
  request.schedule.reset();
  EXPECT_FALSE(choose(request).fits);
  // Then the schedule that comes closest is taken.
  request.recompute = ChoiceRequest::Recompute::none;
  request.cut = ChoiceRequest::Cut::uniform;
  request.head = HeadForm::streamed;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Schedule& schedule : named_candidates(request)) {
    ChoiceRequest named = request;
    named.schedule = schedule;
    least = std::min(least, largest(choose(named).plan));
  }
  request.search_beyond_names = false;
  EXPECT_EQ(largest(choose(request).plan), least);
}

// Loops of one stage per rank have names of their own.
TEST(NamedCandidates, HaveNoListTwice) {
  ChoiceRequest request = request_for("", 2, 4);
  request.chunks = {1, 2, 3};
  for (const Schedule& schedule : named_candidates(request)) {
    if (takes_chunks(schedule.name)) {
      EXPECT_GT(schedule.chunks, 1) << schedule.name;
    }
  }
}

// Parameters, gradients and two moments, of which a plan without training has the parameters alone.
TEST(UnitMemory, CountsGradientsAndTwoMoments) {
  PlanRequest request = request_for("gpipe", 1, 2).base;
  request.schedule = make_schedule({.name = "gpipe", .ranks = 1, .micro_batches = 2});
  request.partition = uniform_partition(request.model, 1);
  const UnitMemory training = unit_memory(request);
  request.training = false;
  const UnitMemory without = unit_memory(request);
  const std::int64_t C = request.model.hidden;
  constexpr std::size_t kMlp = 2;
  EXPECT_EQ(training.bytes[0][kMlp] - without.bytes[0][kMlp], 12.0 * static_cast<double>(8 * C * C + 7 * C));
}

TEST(Choose, MemoryLimitsShapeTheCut) {
  // A light but large embedding and head: by time alone the last rank would take many layers.
  ModelConfig model{.layers = 8, .heads = 4, .hidden = 64, .vocab = 30000, .max_seq_len = 128, .tied = false};
  ChoiceRequest request = request_for("gpipe", 2, 8, model);
  request.head = HeadForm::streamed;
  UnitCosts& costs = request.costs.units;
  const int units = unit_count(model);
  for (int u = 0; u < units; ++u) {
    const double ms = u == 0 ? 0.1 : u >= costs.first_head ? 0.1 / head_shards(model) : 1;
    const auto at = static_cast<std::size_t>(u);
    costs.forward[at] = costs.input[at] = costs.weight[at] = ms;
  }
  costs.streamed_head = {.forward = 0.3};
  const Choice free = choose(request);
  EXPECT_TRUE(free.fits);
  std::int64_t leanest = largest(free.plan);
  for (int first = 1; first < units; ++first) {
    PlanRequest cut = free.plan.request;
    cut.partition = {first, units - first};
    leanest = std::min(leanest, largest(make_plan(cut)));
  }
  ASSERT_LT(leanest, largest(free.plan));  // gpipe keeps all activations: more layers are more memory
  request.memory_limit = leanest;
  const Choice limited = choose(request);
  EXPECT_TRUE(limited.fits);
  EXPECT_NE(limited.plan.request.partition, free.plan.request.partition);
}

TEST(Choose, AutoIsNoSlowerThanAnyNamedSchedule) {
  for (const int p : {2, 4}) {
    const Choice best = choose(request_for("", p, 8));
    EXPECT_FALSE(best.schedule_reason.empty());
    EXPECT_NE(best.plan.request.schedule.placement.kind, Placement::Kind::bidirectional);
    EXPECT_LE(best.plan.request.schedule.placement.depth(), unit_count(preset("d6")));
    check_schedule(best.plan.request.schedule);
    for (const std::string& name : schedule_names()) {
      if (name == "dualpipe" || violation({.name = name, .ranks = p, .micro_batches = 8})) continue;
      const Choice named = choose(request_for(name, p, 8));
      EXPECT_LE(best.predicted.makespan, 1.01 * named.predicted.makespan) << name << " p " << p;
    }
  }
}

TEST(Choose, AutoStaysWithinTheMemoryLimit) {
  ChoiceRequest request = request_for("", 4, 8);
  const Choice free = choose(request);
  request.memory_limit = largest(free.plan) * 3 / 4;
  request.recompute = ChoiceRequest::Recompute::automatic;
  const Choice limited = choose(request);
  EXPECT_TRUE(limited.fits);
  EXPECT_LE(largest(limited.plan), request.memory_limit);
}

TEST(Choose, GivenCostsHoldWhateverTheCut) {
  ChoiceRequest request = request_for("1f1b", 4, 8);
  request.costs = given_cost_model(Costs{.forward = {20}, .input = {20}, .weight = {20}}, request.base.model, 128, 4);
  const Choice choice = choose(request);
  EXPECT_NEAR(choice.predicted.bubble, 3.0 / 11, 1e-12);
  EXPECT_NEAR(choice.predicted.makespan, 660, 1e-9);
}

TEST(RecomputeList, TakesTheFirstLayersOfEachStage) {
  const ModelConfig model{.layers = 2, .heads = 2, .hidden = 32, .vocab = 131, .max_seq_len = 32};
  EXPECT_EQ(recompute_list({1, 2}, model, {3, 3}, HeadForm::streamed),
            (std::vector<bool>{false, true, false, true, true, false}));
  EXPECT_REFUSED(recompute_list({3, 0}, model, {3, 3}, HeadForm::streamed), "--recompute 3,0", "stage 0 has only 2");
  EXPECT_REFUSED(recompute_list({1}, model, {3, 3}, HeadForm::streamed), "--recompute 1", "2 numbers");
  // Shards count where they are not streamed.
  EXPECT_REFUSED(recompute_list({1, 3}, model, {3, 3}, HeadForm::streamed), "stage 1 has only 2");
  EXPECT_EQ(recompute_list({0, 3}, model, {3, 3}, HeadForm::stored),
            (std::vector<bool>{false, false, false, true, true, true}));
}

}  // namespace
}  // namespace train_gpt

#include "pipeline/planner/unit_profile.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <mutex>

#include "kernels/cpu/cpu_device.h"
#include "kernels/injected_delays.h"
#include "kernels/local_communicator.h"
#include "pipeline/planner/choose.h"
#include "pipeline/planner/unit_costs.h"
#include "test/refused.h"

namespace train_gpt {
namespace {

const ModelConfig kModel{.layers = 2, .heads = 2, .hidden = 32, .vocab = 131, .max_seq_len = 32};

Profile measured(int ranks, int pipeline_ranks, const ProfileEffort& effort) {
  Profile profile;
  std::mutex mutex;
  run_local_ranks(ranks, [&](Communicator& world) {
    const auto device = make_cpu_device(1);
    const Profile mine = measure_profile(*device, world, pipeline_ranks, kModel, 2, 16, effort);
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) profile = mine;
  });
  return profile;
}

std::string temporary_file() { return testing::TempDir() + "profile_test.json"; }

TEST(Profile, MeasuresEveryUnitOnEveryRankAndMessagesOfTheRealSize) {
  const Profile profile = measured(4, 2, {});
  ASSERT_EQ(profile.ranks.size(), 2U);
  for (const RankProfile& rank : profile.ranks) {
    for (const UnitTimes& times : rank) {
      EXPECT_GT(times.forward.median, 0);
      EXPECT_LE(times.forward.least, times.forward.median);
      EXPECT_LE(times.forward.median, times.forward.most);
    }
    EXPECT_GT(rank[static_cast<std::size_t>(UnitForm::mlp)].weight.median, 0);
  }
  ASSERT_FALSE(profile.messages.empty());
  EXPECT_EQ(profile.messages.back().bytes, 2 * 16 * 32 * 4);
  EXPECT_GT(message_latency(profile), 0);
}

// Every look at its clock takes it the same time further.
class TickingDevice : public cpu::CpuDevice {
 public:
  explicit TickingDevice(double tick_ms) : CpuDevice(1), tick_(static_cast<Mark>(tick_ms * 1e6)) {}
  Mark mark() override { return now_ += tick_; }

 private:
  Mark tick_;
  Mark now_ = 0;
};

// F, I and W are what lies between two looks; of two replicas the slower one counts.
TEST(Profile, HasTheTimesOfEachPassOnTheSlowerReplica) {
  run_local_ranks(2, [&](Communicator& world) {
    TickingDevice device(world.rank() == 0 ? 3 : 2);
    const Profile profile = measure_profile(device, world, /*pipeline_ranks=*/1, kModel, 2, 16, {});
    for (const UnitTimes& times : profile.ranks.at(0)) {
      for (const Spread& spread : {times.forward, times.input, times.weight}) {
        EXPECT_DOUBLE_EQ(spread.least, 3);
        EXPECT_DOUBLE_EQ(spread.median, 3);
        EXPECT_DOUBLE_EQ(spread.most, 3);
      }
    }
  });
}

TEST(Profile, TheMedianOfSamplesIsInTheMiddle) {
  const Spread spread = spread_of({5, 1, 9, 2, 3});
  EXPECT_EQ(spread.least, 1);
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.most, 9);
}

// 0.5 ms and another 2 ms for 4 MB.
TEST(Profile, BandwidthIsThatOfLongMessagesBeyondTheirLatency) {
  Profile profile;
  profile.messages = {{256, {0.5, 0.5, 0.5}}, {4'000'000, {2.5, 2.5, 2.5}}};
  EXPECT_DOUBLE_EQ(message_latency(profile), 0.5);
  EXPECT_DOUBLE_EQ(message_bandwidth(profile), 2);
}

// The link between the ranks 1 and 2 holds every message back for 20 ms. Three ranks have a way back to rank 0.
TEST(Profile, MeasuresEachLink) {
  DelaySpec delays;
  delays.link = [](int source, int destination, int) {
    return DelaySpec::Link{source + destination == 3 ? 20.0 : 0.0, 0};
  };
  std::vector<LinkTime> links;
  run_local_ranks(3, [&](Communicator& world) {
    const auto device = make_cpu_device(1);
    const auto delayed = inject_delays(world.split(0, world.rank()), delays);
    const Profile mine = measure_profile(*device, *delayed, 3, kModel, 2, 16, {});
    if (world.rank() == 0) links = mine.links;
  });
  ASSERT_EQ(links.size(), 3U);
  EXPECT_LT(links[0].latency, 20);
  EXPECT_GE(links[1].latency, 20);
  EXPECT_LT(links[2].latency, 20);
  EXPECT_EQ(measured(4, 2, {}).links.size(), 1U);
}

TEST(Profile, LinksThatDifferByMoreThanTwiceAreCostsOfTheirOwn) {
  Profile profile;
  profile.ranks.resize(3);
  profile.messages = {{256, {0.5, 0.5, 0.5}}, {4'000'000, {2.5, 2.5, 2.5}}};
  profile.links = {{0.5, 2}, {0.6, 0}, {0.4, 3}};
  EXPECT_FALSE(links_differ(profile));
  EXPECT_EQ(cost_model(profile, kModel, 3, "").links.latency, (std::vector<double>{0.5}));
  profile.links[1].latency = 0.9;
  EXPECT_TRUE(links_differ(profile));
  const Costs links = cost_model(profile, kModel, 3, "").links;
  EXPECT_EQ(links.latency, (std::vector<double>{0.5, 0.9, 0.4}));
  EXPECT_EQ(links.bandwidth, (std::vector<double>{2, 2, 3}));  // of link 1 what all of them say
  EXPECT_EQ(cost_model(profile, kModel, 2, "").links.latency, (std::vector<double>{0.5}));  // of another pipeline
}

TEST(Profile, OfOneRankHasNoMessages) { EXPECT_TRUE(measured(1, 1, {}).messages.empty()); }

TEST(Profile, ComesBackFromItsFileAsItWas) {
  const Profile profile = measured(3, 3, {});
  const std::string path = temporary_file();
  save_profile(profile, path);
  const Profile loaded = load_profile(path);
  EXPECT_EQ(loaded.device, profile.device);
  EXPECT_EQ(loaded.sizes, profile.sizes);
  ASSERT_EQ(loaded.ranks.size(), profile.ranks.size());
  for (int form = 0; form < kUnitForms; ++form) {
    const auto f = static_cast<std::size_t>(form);
    EXPECT_EQ(loaded.ranks[1][f].input.median, profile.ranks[1][f].input.median);
    EXPECT_EQ(loaded.ranks[1][f].weight.most, profile.ranks[1][f].weight.most);
  }
  ASSERT_EQ(loaded.messages.size(), profile.messages.size());
  EXPECT_EQ(loaded.messages.back().one_way.median, profile.messages.back().one_way.median);
  EXPECT_EQ(profile_table(loaded), profile_table(profile));
  ASSERT_EQ(loaded.links.size(), 3U);
  EXPECT_EQ(loaded.links[1].latency, profile.links[1].latency);
  EXPECT_EQ(loaded.links[2].bandwidth, profile.links[2].bandwidth);
  std::remove(path.c_str());
}

TEST(Profile, RefusesFilesThatAreNone) {
  const std::string path = temporary_file();
  EXPECT_REFUSED(load_profile(path + ".absent"), "--profile", ".absent", "train_gpt profile");
  for (const char* text : {"", "{", "{}", "[1]", R"({"version": 1})", R"({"version": 2, "device": 3})"}) {
    std::ofstream(path) << text;
    EXPECT_REFUSED(load_profile(path), "--profile " + path, "train_gpt profile");
  }
  std::remove(path.c_str());
}

TEST(Profile, RefusesOtherSizesNamingTheDifference) {
  Profile profile;
  profile.sizes = profile_sizes(kModel, 4, 16, Precision::fp32);
  check_profile(profile, "f.json", profile.sizes);
  ProfileSizes other = profile.sizes;
  other.hidden = 64;
  EXPECT_REFUSED(check_profile(profile, "f.json", other), "--profile f.json", "--hidden 32", "64");
  other = profile.sizes;
  other.micro_batch_size = 1;
  EXPECT_REFUSED(check_profile(profile, "f.json", other), "--micro-batch-size 4", "1");
  other = profile.sizes;
  other.seq_len = 17;
  EXPECT_REFUSED(check_profile(profile, "f.json", other), "--seq-len 16", "17");
  other = profile.sizes;
  other.heads = 4;
  EXPECT_REFUSED(check_profile(profile, "f.json", other), "--heads 2", "4");
  other = profile.sizes;
  other.vocab = 132;
  EXPECT_REFUSED(check_profile(profile, "f.json", other), "--vocab 131", "132");
}

TEST(UnitCosts, AreTheMediansOfTheRanks) {
  Profile profile;
  profile.ranks.resize(2);
  for (std::size_t r = 0; r < 2; ++r) {
    for (UnitTimes& times : profile.ranks[r]) times.forward.median = r == 0 ? 1 : 3;
    profile.ranks[r][static_cast<std::size_t>(UnitForm::head_first)].input.median = 8;
    profile.ranks[r][static_cast<std::size_t>(UnitForm::head_shard)].weight.median = 16;
    profile.ranks[r][static_cast<std::size_t>(UnitForm::head_streamed)].forward.median = 24;
  }
  const UnitCosts costs = unit_costs(profile, kModel);
  ASSERT_EQ(costs.forward.size(), 6U);
  EXPECT_DOUBLE_EQ(costs.forward[0], 2);
  EXPECT_DOUBLE_EQ(costs.input[5], 8);
  EXPECT_DOUBLE_EQ(costs.streamed_head.forward, 24);
  // Shards beyond the first cost what the measured one does, in proportion to their columns.
  ModelConfig shards = kModel;
  shards.vocab = 4997;  // 13, 13 and 14 blocks
  const UnitCosts wide = unit_costs(profile, shards);
  ASSERT_EQ(wide.weight.size(), 8U);
  EXPECT_DOUBLE_EQ(wide.input[5], 8);
  EXPECT_DOUBLE_EQ(wide.weight[6], 16);
  EXPECT_DOUBLE_EQ(wide.weight[7], 16 * 14.0 / 13);
  const std::vector<double> slowness = rank_slowness(profile, 2);
  EXPECT_DOUBLE_EQ(slowness[1] / slowness[0], 3);
  EXPECT_EQ(rank_slowness(profile, 4), std::vector<double>(4, 1.0));
}

// I repeats the forward of a layer, W the scores of a shard: half of its forward.
TEST(UnitCosts, RecomputationTakesItsTime) {
  UnitCosts units;
  units.forward = {1, 10, 100, 8};
  units.input = {0, 20, 200, 4};
  units.weight = {2, 30, 300, 2};
  units.first_head = 3;
  const Placement placement = Placement::loop(1, 2, 4);
  const StageCosts costs = stage_costs(units, HeadForm::stored, placement, {2, 2}, {}, {false, true, false, true});
  EXPECT_EQ(costs.forward, (std::vector<double>{11, 108}));
  EXPECT_EQ(costs.input, (std::vector<double>{20 + 10, 204}));
  EXPECT_EQ(costs.weight, (std::vector<double>{32, 302 + 4}));
}

TEST(UnitCosts, NoiseOfMeasuringMakesNoRankSlow) {
  Profile profile;
  profile.ranks.resize(2);
  for (std::size_t r = 0; r < 2; ++r) {
    for (UnitTimes& times : profile.ranks[r]) times.forward.median = r == 0 ? 1 : 1.1;
  }
  EXPECT_EQ(rank_slowness(profile, 2), std::vector<double>(2, 1.0));
}

TEST(UnitCosts, EstimatesFollowTheOperations) {
  const ModelConfig model = preset("d6");  // 384 wide: the classifier is 50304 x 384
  const UnitCosts costs = estimated_unit_costs(model, 256, 2);
  const double head = costs.streamed_head.forward / 3;
  EXPECT_NEAR(head / costs.forward[2], 2.0 * 384 * 50304 / (16.0 * 384 * 384), 1e-9);
  double sum = 0, shards = 0;
  for (std::size_t u = 0; u < costs.weight.size(); ++u) sum += costs.weight[u];
  EXPECT_NEAR(sum, 2, 1e-9);  // two ranks, a third of the work of an average one is 1 ms
  for (std::size_t u = 13; u < costs.weight.size(); ++u) {
    shards += costs.total(u);
    EXPECT_NEAR(costs.forward[u], 2 * costs.weight[u], 1e-12);
    EXPECT_EQ(costs.input[u], 0);
  }
  EXPECT_NEAR(shards, costs.streamed_head.forward, 1e-9);
}

}  // namespace
}  // namespace train_gpt

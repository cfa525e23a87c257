// The simulator's rules, one by one, on lists small enough to work out by hand.
#include "pipeline/simulate/simulator.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/list_builder.h"

namespace train_gpt {
namespace {

// Two ranks, one virtual stage each.
Schedule two_ranks(int m) {
  Schedule schedule(Placement::loop(2, 1, m), m);
  schedule.name = "two ranks";
  return schedule;
}

template <typename Function>
std::string refusal(Function&& function) {
  try {
    function();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Simulate, OneForwardOneBackward) {
  const Simulation simulation = simulate(make_schedule({.name = "1f1b", .ranks = 4, .micro_batches = 8}), Costs{});
  EXPECT_EQ(simulation.makespan, 33.0);
  EXPECT_NEAR(simulation.bubble, 3.0 / 11.0, 1e-12);
  EXPECT_EQ(simulation.lower_bound, 33.0);
  EXPECT_EQ(simulation.ideal, 24.0);
  EXPECT_EQ(simulation.peak_live, (std::vector<double>{4, 3, 2, 1}));
  EXPECT_EQ(simulation.peak_pending_weight, (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(simulation.messages, 2 * 3 * 8);
}

// Stages p-1 and p of a V share a rank, so nothing is sent between them.
TEST(Simulate, TheBoundOfAVCountsNoHopWithinARank) {
  for (const int p : {2, 3, 4}) {
    const Schedule schedule = make_schedule({.name = "zb-v", .ranks = p, .micro_batches = 1});
    const Simulation simulation = simulate(schedule, Costs{.latency = {0.5}});
    EXPECT_DOUBLE_EQ(simulation.makespan, 4 * p - 1) << p;
    EXPECT_LE(simulation.lower_bound, simulation.makespan) << p;
    // One micro-batch: the way through all 2p stages, each of half a unit, and back, and the W of the first.
    EXPECT_DOUBLE_EQ(simulate(schedule, Costs{}).lower_bound, 2 * p + 0.5) << p;
  }
}

TEST(Simulate, TheBoundOfForwardsAloneIsTheirWork) {
  Schedule schedule = make_schedule({.name = "gpipe", .ranks = 2, .micro_batches = 3});
  for (std::vector<Action>& list : schedule.lists) list.resize(3);
  const Simulation simulation = simulate(schedule, Costs{.forward = {2}});
  EXPECT_DOUBLE_EQ(simulation.makespan, 8);
  EXPECT_DOUBLE_EQ(simulation.lower_bound, 6);
}

TEST(Simulate, TheSpanBubbleIsThatOfTheBusiestRank) {
  const Schedule schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 4});
  const Simulation simulation = simulate(schedule, Costs{.forward = {1, 3}, .input = {1}, .weight = {1}});
  // Rank 1 works for 4 * 5 ms without a pause.
  EXPECT_DOUBLE_EQ(simulation.ideal, 20);
  double span = 0;
  for (std::size_t r = 0; r < 2; ++r) span = std::max(span, simulation.last_end[r] - simulation.first_start[r]);
  EXPECT_GT(span, 20);
  EXPECT_DOUBLE_EQ(simulation.bubble_span, 1 - 20 / span);
}

TEST(Simulate, InputsArriveOneHopLaterAndSendsCostNothing) {
  Schedule schedule = two_ranks(2);
  schedule.rank(0).forward(0, 0).forward(0, 1).backward(0, 0).backward(0, 1);
  schedule.rank(1).forward(1, 0).backward_input(1, 0).forward(1, 1).backward(1, 1).backward_weight(1, 0);
  const Costs costs{.forward = {2.0}, .input = {3.0}, .weight = {5.0}, .latency = {0.5}};
  const Simulation simulation = simulate(schedule, costs);
  const auto expect = [&](int rank, int position, double start, double end) {
    EXPECT_DOUBLE_EQ(simulation.intervals[rank][position].start, start) << rank << " " << position;
    EXPECT_DOUBLE_EQ(simulation.intervals[rank][position].end, end) << rank << " " << position;
  };
  expect(0, 0, 0, 2);
  expect(0, 1, 2, 4);        // the send of 0F0 did not hold it up
  expect(1, 0, 2.5, 4.5);    // one hop after 0F0
  expect(1, 1, 4.5, 7.5);    // I
  expect(0, 2, 8, 16);       // B one hop after the I of the next stage
  expect(1, 2, 7.5, 9.5);    //
  expect(1, 3, 9.5, 17.5);   // B hands on when it ends:
  expect(0, 3, 18, 26);      // 17.5 + 0.5, not 12.5 + 0.5
  expect(1, 4, 17.5, 22.5);  // W
  EXPECT_DOUBLE_EQ(simulation.makespan, 26.0);
  EXPECT_DOUBLE_EQ(simulation.busy[0], 20.0);
  EXPECT_DOUBLE_EQ(simulation.busy[1], 20.0);
  EXPECT_DOUBLE_EQ(simulation.bubble, 1.0 - 40.0 / 52.0);
  EXPECT_DOUBLE_EQ(simulation.span, 26.0);
  EXPECT_DOUBLE_EQ(simulation.first_start[1], 2.5);
  EXPECT_DOUBLE_EQ(simulation.last_end[1], 22.5);
}

TEST(Simulate, CostsPerRankAreSharedByItsChunksAndCostsPerStageAreNot) {
  const Placement placement = Placement::loop(2, 2, 4);
  Costs costs{.forward = {4.0}, .input = {4.0, 6.0}, .weight = {1.0, 2.0, 3.0, 4.0}, .latency = {0.25}};
  const StageCosts stages = stage_costs(costs, placement);
  EXPECT_EQ(stages.forward, (std::vector<double>{2, 2, 2, 2}));
  EXPECT_EQ(stages.input, (std::vector<double>{2, 3, 2, 3}));
  EXPECT_EQ(stages.weight, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(stages.activation[1].latency, 0.25);

  const StageCosts v_shape = stage_costs(costs, Placement::v_shape(2, 4));
  EXPECT_EQ(v_shape.input, (std::vector<double>{2, 3, 3, 2}));
  costs.weight = {1.0, 2.0};
  const StageCosts both_copies = stage_costs(costs, Placement::bidirectional(2, 4));
  EXPECT_EQ(both_copies.input, (std::vector<double>{4, 6, 4, 6}));
}

TEST(Simulate, EveryLinkAndDirectionHasItsOwnCosts) {
  const Schedule chain = make_schedule({.name = "1f1b", .ranks = 3, .micro_batches = 1});
  const auto makespan = [](const Schedule& schedule, const Costs& costs) { return simulate(schedule, costs).makespan; };
  EXPECT_DOUBLE_EQ(makespan(chain, {}), 9);
  EXPECT_DOUBLE_EQ(makespan(chain, {.latency = {0.5}}), 9 + 4 * 0.5);
  EXPECT_DOUBLE_EQ(makespan(chain, {.latency = {0.5, 0.25}}), 9 + 2 * 0.75);
  EXPECT_DOUBLE_EQ(makespan(chain, {.latency = {0.5, 0.25, 7}}), 9 + 2 * 0.75);  // nothing goes from rank 2 to rank 0
  EXPECT_DOUBLE_EQ(makespan(chain, {.latency = {1, 2, 4, 8}}), 9 + 1 + 2 + 8 + 4);
  EXPECT_DOUBLE_EQ(makespan(chain, {.latency = {1, 2, 99, 4, 8, 99}}), 9 + 1 + 2 + 8 + 4);
  EXPECT_DOUBLE_EQ(makespan(chain, {.bandwidth = {1, 2, 4, 8}, .message_bytes = 8e6}), 9 + 8 + 4 + 1 + 2);

  const Schedule loop = make_schedule({.name = "interleaved", .ranks = 3, .micro_batches = 1, .chunks = 2});
  EXPECT_DOUBLE_EQ(makespan(loop, {.latency = {1, 2, 4}}), 9 + 2 * (2 * (1 + 2) + 4));
  EXPECT_EQ(refusal([&] {
              simulate(loop, Costs{.latency = {1, 2}});
            }),
            "--cost-comm: no value for the link from rank 2 to rank 0, which this placement takes; give 3 values per "
            "direction");
  EXPECT_NE(refusal([&] {
              simulate(loop, Costs{.latency = {1, 2, 3, 4, 5}});
            }).find("5 values; give 1"),
            std::string::npos);

  const Schedule pair = make_schedule({.name = "interleaved", .ranks = 2, .micro_batches = 1, .chunks = 2});
  EXPECT_DOUBLE_EQ(makespan(pair, {.latency = {1, 10}}), 6 + 2 * (1 + 10) + 1 + 10);  // one link, up and down
  const Schedule v_shape = make_schedule({.name = "v-min", .ranks = 2, .micro_batches = 1});
  EXPECT_DOUBLE_EQ(makespan(v_shape, {.latency = {1, 10}}), 4.5 + 2 * (1 + 10));  // I and W apart
}

TEST(Simulate, SendsSlowTheActionsThatRunMeanwhile) {
  // Rank 0 sends for 2 ms after its F: of W's 1 ms nothing is slowed after that, of the next F all is until then.
  const Schedule schedule = make_schedule({.name = "gpipe", .ranks = 2, .micro_batches = 2});
  Costs costs{.bandwidth = {1}, .message_bytes = 0.5e6, .send_slowdown = 1};
  const Simulation slowed = simulate(schedule, costs);
  // F1 starts with 0.5 ms of sending before it, which do the work of 0.25 ms.
  EXPECT_DOUBLE_EQ(slowed.intervals[0][1].end - slowed.intervals[0][1].start, 1.25);
  costs.message_bytes = 50e6;  // longer than F: all of it at half speed
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).intervals[0][1].end - 1, 2.0);
  EXPECT_LE(slowed.lower_bound, slowed.makespan);
  costs.message_bytes = 0.5e6;
  costs.latency = {100};  // of the way, which takes nothing of the sender
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).intervals[0][1].end - 1, 1.25);
  costs.send_slowdown = 0;
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).intervals[0][1].end, 2.0);
}

TEST(Simulate, RefusesCostsThatDoNotFit) {
  const Placement placement = Placement::loop(2, 2, 4);
  EXPECT_EQ(refusal([&] {
              stage_costs({.forward = {1, 2, 3}}, placement);
            }),
            "--cost-forward: 3 values; give 1, one per rank (2) or one per virtual stage (4)");
  EXPECT_NE(refusal([&] { stage_costs({.weight = {-1.0}}, placement); }).find("--cost-weight: -1"), std::string::npos);
  EXPECT_NE(refusal([&] { stage_costs({.latency = {std::numeric_limits<double>::quiet_NaN()}}, placement); }), "");
  EXPECT_NE(refusal([&] { stage_costs({.fused = {1, 2, 3}}, placement); }).find("--cost-fused"), std::string::npos);
}

TEST(Simulate, MessagesOfOneChannelFollowEachOther) {
  Schedule schedule = two_ranks(2);
  schedule.rank(0).forward(0, 0).forward(0, 1);
  schedule.rank(1).forward(1, 0).forward(1, 1);
  // 10 MB at 2 GB/s: 5 ms on the wire, longer than the 1 ms between the sends.
  const Costs costs{.latency = {0.5}, .bandwidth = {2.0}, .message_bytes = 10e6};
  const Simulation simulation = simulate(schedule, costs);
  EXPECT_DOUBLE_EQ(simulation.intervals[1][0].start, 1.0 + 5.0 + 0.5);
  EXPECT_DOUBLE_EQ(simulation.intervals[1][1].start, 6.0 + 5.0 + 0.5);
  EXPECT_DOUBLE_EQ(simulation.bytes, 20e6);
  ASSERT_EQ(simulation.channels.size(), 1u);
  EXPECT_EQ(simulation.channels[0].messages, 2);
  EXPECT_DOUBLE_EQ(simulation.channels[0].bytes, 20e6);
}

TEST(Simulate, QueueCountsMessagesUntilTheyAreUsed) {
  Schedule schedule = two_ranks(3);
  schedule.rank(0).forward(0, 0).forward(0, 1).forward(0, 2);
  schedule.rank(1).forward(1, 0).forward(1, 1).forward(1, 2);
  const auto longest = [&](double slow) {
    return simulate(schedule, Costs{.forward = {1.0, slow}}).channels.at(0).longest_queue;
  };
  EXPECT_EQ(longest(1.0), 1);  // a slot that is free at this moment is free
  EXPECT_EQ(longest(1.5), 2);
  EXPECT_EQ(longest(10.0), 3);
  EXPECT_EQ(longest(0.1), 1);
}

TEST(Simulate, FusedPairAwaitsBothInputsAndRunsAsOne) {
  Schedule schedule(Placement::bidirectional(2, 2), 2);
  // Copy 0: stage 0 on rank 0, 1 on rank 1, micro-batch 0. Copy 1: stage 2 on rank 1, 3 on rank 0, micro-batch 1.
  schedule.rank(0).forward(0, 0).forward(3, 1).fuse_with_next().backward(0, 0).backward(3, 1);
  schedule.rank(1).forward(2, 1).forward(1, 0).backward(1, 0).backward(2, 1);
  const Costs one_after_the_other{};
  EXPECT_DOUBLE_EQ(simulate(schedule, one_after_the_other).intervals[0][1].start, 1.0);
  EXPECT_DOUBLE_EQ(simulate(schedule, one_after_the_other).intervals[0][2].start, 4.0);

  const Costs fused{.fused = {2.5}};
  const Simulation simulation = simulate(schedule, fused);
  EXPECT_DOUBLE_EQ(simulation.intervals[0][1].start, 4.0);  // when 1B0 has ended
  EXPECT_DOUBLE_EQ(simulation.intervals[0][1].end, 6.5);
  EXPECT_DOUBLE_EQ(simulation.intervals[0][2].start, 4.0);
  EXPECT_DOUBLE_EQ(simulation.intervals[0][2].end, 6.5);
  EXPECT_DOUBLE_EQ(simulation.busy[0], 1.0 + 2.5 + 2.0);
  EXPECT_DOUBLE_EQ(simulation.peak_live[0], 2.0);
  EXPECT_LE(simulation.lower_bound, simulation.makespan);
}

TEST(Simulate, MemoryBetweenInputAndWeightGradient) {
  Schedule schedule(Placement::loop(1, 2, 2), 2);
  schedule.rank(0).forward(0, 0).forward(1, 0).backward_input(1, 0).forward(0, 1).forward(1, 1);
  schedule.rank(0).backward_input(1, 1).backward_input(0, 0).backward_input(0, 1);
  schedule.rank(0).backward_weight(1, 0).backward_weight(1, 1).backward_weight(0, 0).backward_weight(0, 1);
  const auto peak = [&](double weight_memory) {
    return simulate(schedule, Costs{}, {.weight_memory = weight_memory}).peak_live[0];
  };
  EXPECT_DOUBLE_EQ(peak(1.0), 2.0);
  EXPECT_DOUBLE_EQ(peak(0.5), (3 + 0.5) / 2);  // 0F0, 0F1, 1F1 whole, 1F0 half
  EXPECT_DOUBLE_EQ(peak(0.0), 1.5);
  EXPECT_DOUBLE_EQ(simulate(schedule, Costs{}).peak_pending_weight[0], 2.0);
  EXPECT_NE(refusal([&] { peak(1.5); }).find("--weight-memory: 1.5"), std::string::npos);
}

TEST(Simulate, MeasuredDurationsReplaceCosts) {
  Schedule schedule = two_ranks(1);
  schedule.rank(0).forward(0, 0).backward(0, 0);
  schedule.rank(1).forward(1, 0).backward(1, 0);
  const ActionDurations measured = {{1.5, 4.0}, {2.5, 3.0}};
  const Simulation simulation = simulate(schedule, Costs{}, {.durations = &measured});
  EXPECT_DOUBLE_EQ(simulation.makespan, 11.0);
  EXPECT_DOUBLE_EQ(simulation.lower_bound, 11.0);
  EXPECT_DOUBLE_EQ(simulation.busy[1], 5.5);
  const ActionDurations wrong = {{1.5, 4.0}, {2.5}};
  EXPECT_NE(refusal([&] { simulate(schedule, Costs{}, {.durations = &wrong}); }), "");
}

TEST(Simulate, NamesWhatEachRankWaitsFor) {
  Schedule schedule = two_ranks(1);
  schedule.rank(0).backward(0, 0).forward(0, 0);
  schedule.rank(1).forward(1, 0).backward(1, 0);
  EXPECT_EQ(refusal([&] { simulate(schedule, Costs{}); }),
            "two ranks: the lists block each other: rank 0 waits with 0B0 (action 0) for 0F0 of rank 0; "
            "rank 1 waits with 1F0 (action 0) for 0F0 of rank 0");
}

TEST(Simulate, RefusesActionsThatAreNotTheRanks) {
  Schedule foreign = two_ranks(1);
  foreign.rank(0).forward(1, 0);
  EXPECT_NE(refusal([&] { simulate(foreign, Costs{}); }).find("rank 0 cannot run 1F0"), std::string::npos);
  Schedule beyond = two_ranks(1);
  beyond.rank(1).forward(1, 1);
  EXPECT_NE(refusal([&] { simulate(beyond, Costs{}); }).find("rank 1 cannot run 1F1"), std::string::npos);
  Schedule twice = two_ranks(1);
  twice.rank(0).forward(0, 0).forward(0, 0);
  EXPECT_NE(refusal([&] { simulate(twice, Costs{}); }).find("0F0 twice"), std::string::npos);
  Schedule negative = two_ranks(1);
  negative.rank(0).forward(-1, 0);
  EXPECT_NE(refusal([&] { simulate(negative, Costs{}); }), "");
}

TEST(Simulate, LowerBoundSeesThePathAndTheBusiestRank) {
  Schedule schedule = two_ranks(4);
  for (int i = 0; i < 4; ++i) schedule.rank(0).forward(0, i);
  for (int i = 0; i < 4; ++i) schedule.rank(0).backward_input(0, i).backward_weight(0, i);
  for (int i = 0; i < 4; ++i) schedule.rank(1).forward(1, i).backward_input(1, i).backward_weight(1, i);
  // Rank 1 cannot start before 1.5 and has 4 * 3 to do; what follows its last I elsewhere could hide behind its W.
  EXPECT_DOUBLE_EQ(simulate(schedule, Costs{.latency = {0.5}}).lower_bound, 1.5 + 12.0);
  // With long hops the I and W of rank 0 cannot hide: 51 to the start, 4 F and I, a hop, I and W.
  EXPECT_DOUBLE_EQ(simulate(schedule, Costs{.latency = {50.0}}).lower_bound, 51 + 8 + 50 + 2);
  // Rank 0 is slow.
  EXPECT_DOUBLE_EQ(simulate(schedule, Costs{.forward = {10.0, 1.0}}).lower_bound, 4 * 12.0);
}

TEST(Simulate, CriticalPathLeadsFromFirstToLast) {
  const Schedule schedule = make_schedule({.name = "1f1b", .ranks = 3, .micro_batches = 2});
  const Simulation simulation = simulate(schedule, Costs{}, {.critical_path = true});
  std::string path;
  for (const ActionPosition& at : simulation.critical_path) {
    path += to_string(schedule.actions(at.rank)[at.position]) + " ";
  }
  EXPECT_EQ(path, "0F0 1F0 2F0 2B0 2F1 2B1 1B1 0B1 ");
}

TEST(Simulate, StepOfZeroLengthHasNoBubble) {
  const Costs free{.forward = {0.0}, .input = {0.0}, .weight = {0.0}};
  const Simulation simulation = simulate(make_schedule({.name = "zb-h1", .ranks = 3, .micro_batches = 5}), free);
  EXPECT_EQ(simulation.makespan, 0.0);
  EXPECT_EQ(simulation.bubble, 0.0);
  EXPECT_EQ(simulation.bubble_span, 0.0);
}

TEST(Simulate, KeepsOnlyWhatIsAskedFor) {
  const Schedule schedule = make_schedule({.name = "zb-h1", .ranks = 3, .micro_batches = 5});
  const Simulation simulation = simulate(schedule, Costs{}, {.intervals = false, .channels = false});
  EXPECT_TRUE(simulation.intervals.empty());
  EXPECT_TRUE(simulation.channels.empty());
  EXPECT_TRUE(simulation.critical_path.empty());
  EXPECT_EQ(simulation.makespan, simulate(schedule, Costs{}).makespan);
  EXPECT_EQ(simulation.messages, 2 * 2 * 5);
}

}  // namespace
}  // namespace train_gpt

// What records.bin says of its run comes back as it was.
#include "commands/run/record_header.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pipeline/schedule/catalog.h"
#include "test/refused.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;

// Every number another one.
RecordHeader some_header() {
  RecordHeader header;
  header.command = {"train_gpt", "train", "--output", "a folder"};
  header.ranks = 8;
  header.model = {.layers = 3, .heads = 4, .hidden = 64, .vocab = 300, .max_seq_len = 32, .tied = false};
  header.precision = Precision::bf16;
  header.timed = true;
  header.schedule = make_schedule({.name = "dualpipe", .ranks = 4, .micro_batches = 8});
  double next = 1;
  const auto numbers = [&next] {
    std::vector<double> some;
    for (int i = 0; i < 3; ++i) some.push_back(next += 0.25);
    return some;
  };
  const auto hops = [&next] {
    std::vector<Hop> some;
    for (int i = 0; i < 2; ++i) some.push_back({next + 1, next + 2, next + 3}), next += 4;
    return some;
  };
  header.planned.forward = numbers();
  header.planned.input = numbers();
  header.planned.weight = numbers();
  header.planned.fused = numbers();
  header.planned.activation = hops();
  header.planned.gradient = hops();
  header.partition = {5, 6, 7, 8};
  header.units.forward = numbers();
  header.units.input = numbers();
  header.units.weight = numbers();
  header.units.streamed_head = {100, 101, 102};
  header.units.first_head = 7;
  header.slowness = numbers();
  return header;
}

void expect_equal(const std::vector<Hop>& actual, const std::vector<Hop>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].latency, expected[i].latency) << i;
    EXPECT_EQ(actual[i].transfer, expected[i].transfer) << i;
    EXPECT_EQ(actual[i].bytes, expected[i].bytes) << i;
  }
}

void expect_equal(const Schedule& actual, const Schedule& expected) {
  EXPECT_EQ(actual.name, expected.name);
  EXPECT_EQ(actual.ranks, expected.ranks);
  EXPECT_EQ(actual.chunks, expected.chunks);
  EXPECT_EQ(actual.micro_batches, expected.micro_batches);
  EXPECT_EQ(actual.placement.kind, expected.placement.kind);
  EXPECT_EQ(actual.placement.ranks, expected.placement.ranks);
  EXPECT_EQ(actual.placement.chunks, expected.placement.chunks);
  ASSERT_EQ(actual.placement.stages.size(), expected.placement.stages.size());
  for (std::size_t s = 0; s < expected.placement.stages.size(); ++s) {
    const Placement::VirtualStage &is = actual.placement.stages[s], &was = expected.placement.stages[s];
    EXPECT_EQ(is.rank, was.rank) << s;
    EXPECT_EQ(is.copy, was.copy) << s;
    EXPECT_EQ(is.model_stage, was.model_stage) << s;
    EXPECT_EQ(is.previous, was.previous) << s;
    EXPECT_EQ(is.next, was.next) << s;
    EXPECT_EQ(is.first_micro_batch, was.first_micro_batch) << s;
    EXPECT_EQ(is.last_micro_batch, was.last_micro_batch) << s;
  }
  EXPECT_EQ(actual.lists, expected.lists);
}

TEST(RecordHeader, ComesBackFromItsText) {
  const RecordHeader expected = some_header(), actual = record_header_from_json(to_json(expected));
  EXPECT_EQ(actual.command, expected.command);
  EXPECT_EQ(actual.ranks, expected.ranks);
  EXPECT_EQ(actual.model.layers, expected.model.layers);
  EXPECT_EQ(actual.model.heads, expected.model.heads);
  EXPECT_EQ(actual.model.hidden, expected.model.hidden);
  EXPECT_EQ(actual.model.vocab, expected.model.vocab);
  EXPECT_EQ(actual.model.max_seq_len, expected.model.max_seq_len);
  EXPECT_EQ(actual.model.tied, expected.model.tied);
  EXPECT_EQ(actual.precision, expected.precision);
  EXPECT_EQ(actual.timed, expected.timed);
  expect_equal(actual.schedule, expected.schedule);
  EXPECT_EQ(actual.planned.forward, expected.planned.forward);
  EXPECT_EQ(actual.planned.input, expected.planned.input);
  EXPECT_EQ(actual.planned.weight, expected.planned.weight);
  EXPECT_EQ(actual.planned.fused, expected.planned.fused);
  expect_equal(actual.planned.activation, expected.planned.activation);
  expect_equal(actual.planned.gradient, expected.planned.gradient);
  EXPECT_EQ(actual.partition, expected.partition);
  EXPECT_EQ(actual.units.forward, expected.units.forward);
  EXPECT_EQ(actual.units.input, expected.units.input);
  EXPECT_EQ(actual.units.weight, expected.units.weight);
  EXPECT_EQ(actual.units.streamed_head.forward, 100);
  EXPECT_EQ(actual.units.streamed_head.input, 101);
  EXPECT_EQ(actual.units.streamed_head.weight, 102);
  EXPECT_EQ(actual.units.first_head, expected.units.first_head);
  EXPECT_EQ(actual.slowness, expected.slowness);
}

TEST(RecordHeader, ActionsThatTheScheduleDoesNotHaveAreRefused) {
  const RecordHeader header = some_header();
  const Json good = Json::parse(to_json(header));
  const std::vector<std::pair<int, int>> wrong = {{2, static_cast<int>(header.schedule.placement.stages.size())},
                                                  {2, -1},
                                                  {3, header.schedule.micro_batches},
                                                  {3, -1}};
  for (const auto& [field, value] : wrong) {
    Json bad = good;
    bad["schedule"]["lists"][0][0][field] = value;
    EXPECT_REFUSED(record_header_from_json(bad.dump()), "a stage or micro-batch that the schedule does not have");
  }
  EXPECT_REFUSED(record_header_from_json("{}"), "its header is damaged");
}

}  // namespace
}  // namespace train_gpt::test

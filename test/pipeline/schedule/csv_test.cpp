// CSV in and out: what is inferred, what is tolerated, what is refused and how, and that nothing crashes.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <sstream>
#include <stdexcept>

#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/csv.h"
#include "pipeline/simulate/check_schedule.h"

namespace train_gpt {
namespace {

std::string csv_of(const Schedule& schedule) {
  std::ostringstream text;
  write_schedule_csv(schedule, text);
  return text.str();
}

std::string refusal(const std::string& text) {
  try {
    parse_schedule_csv(text, "f.csv");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ScheduleCsv, RoundTripOfEverySchedule) {
  for (const std::string& name : schedule_names()) {
    for (const int p : {1, 2, 3, 4, 6}) {
      for (const int m : {1, 3, 4, 12, 13}) {
        const ScheduleRequest request{.name = name, .ranks = p, .micro_batches = m};
        if (violation(request)) continue;
        const Schedule schedule = make_schedule(request);
        const Schedule read = parse_schedule_csv(csv_of(schedule), name);
        EXPECT_EQ(read.lists, schedule.lists) << name << " p=" << p << " m=" << m;
        EXPECT_EQ(read.ranks, p);
        EXPECT_EQ(read.micro_batches, m);
        EXPECT_EQ(read.chunks, schedule.chunks) << name << " p=" << p << " m=" << m;
        // On one rank a V and a loop are the same.
        if (p > 1) {
          EXPECT_EQ(read.placement.kind, schedule.placement.kind) << name << " p=" << p << " m=" << m;
        }
        ASSERT_EQ(read.placement.stages.size(), schedule.placement.stages.size());
        for (std::size_t s = 0; s < read.placement.stages.size(); ++s) {
          EXPECT_EQ(read.placement.stages[s].first_micro_batch, schedule.placement.stages[s].first_micro_batch);
          EXPECT_EQ(read.placement.stages[s].last_micro_batch, schedule.placement.stages[s].last_micro_batch);
          EXPECT_EQ(read.placement.stages[s].next, schedule.placement.stages[s].next);
        }
      }
    }
  }
}

// As PyTorch lowers a schedule: a message is received right before the action that needs it, and sent right after the
// one that makes it; for a pair, before and after both.
std::string lowered_csv_of(const Schedule& schedule) {
  std::ostringstream text;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<Action>& list = schedule.actions(rank);
    const auto crosses = [&](int stage, bool up) {
      const auto& stages = schedule.placement.stages;
      const int other = up ? stages[stage].next : stages[stage].previous;
      return other >= 0 && stages[other].rank != rank;
    };
    const auto message = [&](const Action& a, bool sends) {
      if (a.op == Op::backward_weight || !crosses(a.stage, (a.op == Op::forward) == sends)) return;
      text << a.stage << (sends ? "SEND_" : "RECV_") << (a.op == Op::forward ? "F" : "B") << a.micro_batch << ",";
    };
    text << list.front().stage << "UNSHARD,";
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::size_t end = list[i].fused_with_next ? i + 2 : i + 1;
      for (std::size_t k = i; k < end; ++k) message(list[k], false);
      if (end == i + 2)
        text << to_string(list[i]) << ";" << to_string(list[i + 1]) << "OVERLAP_F_B,";
      else
        text << to_string(list[i]) << ",";
      for (std::size_t k = i; k < end; ++k) message(list[k], true);
      i = end - 1;
    }
    text << list.front().stage << "REDUCE_GRAD," << list.front().stage << "RESHARD\n";
  }
  return text.str();
}

TEST(ScheduleCsv, ReadsLoweredSchedulesAndChecksTheirMessages) {
  for (const std::string& name : schedule_names()) {
    for (const int p : {2, 4}) {
      const Schedule schedule = make_schedule({.name = name, .ranks = p, .micro_batches = 8});
      const std::string lowered = lowered_csv_of(schedule);
      EXPECT_NE(lowered.find("SEND_F"), std::string::npos) << name;
      EXPECT_EQ(parse_schedule_csv(lowered, name).lists, schedule.lists) << name;
      // Without one of them, with one twice.
      const std::size_t at = lowered.find("RECV_B"), begin = lowered.rfind(',', at) + 1,
                        end = lowered.find(',', at) + 1;
      const std::string cell = lowered.substr(begin, end - begin);
      std::string without = lowered, twice = lowered;
      without.erase(begin, cell.size());
      twice.insert(begin, cell);
      EXPECT_NE(refusal(without).find("lacks " + cell.substr(0, cell.size() - 1)), std::string::npos)
          << refusal(without);
      EXPECT_NE(refusal(twice).find("is there twice"), std::string::npos) << refusal(twice);
    }
  }
  EXPECT_NE(
      refusal("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0").find("row 1, cell 1: `0SEND_F0` stands before"),
      std::string::npos);
  EXPECT_NE(
      refusal("0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0").find("row 1, cell 4: `0RECV_B0` stands after"),
      std::string::npos);
  EXPECT_NE(
      refusal("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1SEND_F0").find("no action of this row needs"),
      std::string::npos);
  EXPECT_NE(refusal("0F0,0SEND_X0,0B0").find("is no action"), std::string::npos);
}

TEST(ScheduleCsv, ToleratesWhatEditorsLeaveBehind) {
  const Schedule plain = parse_schedule_csv("0F0,0B0\n1F0,1B0\n", "f.csv");
  for (const char* text : {"0F0,,0B0,\n,1F0,1B0", "0F0, 0B0\r\n 1F0,\t1B0\r\n",
                           "\xEF\xBB\xBF"
                           "0F0,0B0\n1F0,1B0\n\n\n",
                           "\"0F0\",\"0B0\"\n\"1F0\",\"1B0\"\n"}) {
    EXPECT_EQ(parse_schedule_csv(text, "f.csv").lists, plain.lists) << text;
  }
}

TEST(ScheduleCsv, FusedPairsWithAndWithoutParentheses) {
  const std::string with = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n";
  const auto list = parse_schedule_csv(with, "f.csv").lists[0];
  EXPECT_EQ(parse_schedule_csv("0F0,0F1;0B0OVERLAP_F_B,0B1\n", "f.csv").lists[0], list);
  EXPECT_EQ(parse_schedule_csv("0F0, ( 0F1 ; 0B0 ) OVERLAP_F_B ,0B1\n", "f.csv").lists[0], list);
  EXPECT_EQ(csv_of(parse_schedule_csv(with, "f.csv")), with);
  ASSERT_EQ(list.size(), 4u);
  EXPECT_TRUE(list[1].fused_with_next);
  EXPECT_FALSE(list[2].fused_with_next);
}

TEST(ScheduleCsv, InfersAnyTable) {
  // Stages 0 and 3 on rank 0, 1 and 2 on rank 1: a V. 0 and 1 on rank 0, 2 and 3 on rank 1: neither V nor loop.
  EXPECT_EQ(parse_schedule_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "f.csv").placement.kind, Placement::Kind::v_shape);
  const Schedule blocks = parse_schedule_csv("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n", "f.csv");
  EXPECT_EQ(blocks.placement.kind, Placement::Kind::table);
  EXPECT_EQ(blocks.chunks, 2);
  EXPECT_NO_THROW(check_schedule(blocks));
  const Schedule uneven = parse_schedule_csv("0F0,2F0,2B0,0B0\n1F0,1B0\n", "f.csv");
  EXPECT_EQ(uneven.placement.depth(), 3);
  EXPECT_NO_THROW(check_schedule(uneven));
}

TEST(ScheduleCsv, RefusesNonsenseByRowAndCell) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "schedule file f.csv: holds no action"},
      {"\n\n", "holds no action"},
      {"0F0,0B0\n\n1F0,1B0\n", "row 2 holds no action"},
      {"0F0,0X0\n", "row 1, cell 2: `0X0` is no action"},
      {"0F0,0B\n", "row 1, cell 2: `0B` is no action"},
      {"0F0,F0\n", "row 1, cell 2: `F0` is no action"},
      {"0F0,-1B0\n", "row 1, cell 2: `-1B0` is no action"},
      {"0F0,0B0x\n", "`0B0x` is no action"},
      {"0F0,0B99999999999999\n", "is no action"},
      {"rank 0,0F0\n", "row 1, cell 1: `rank 0` is no action"},
      {"0F0,0B0\n0F1,0B1\n", "row 2, cell 1: `0F1` is of a stage that row 1 computes already"},
      {"0F0,0B0\n2F0,2B0\n", "row 2, cell 1: `2F0` names stage 2, but stage 1 is nowhere"},
      {"0F0,0B0,2147483647F0\n", "names stage 2147483647, but the file has only 3 actions"},
      {"0F0,0B0,0F2147483647\n", "names micro-batch 2147483647, but the file has only 3 actions"},
      {"0F0,0B0,0F2147483646\n", "names micro-batch 2147483646, but the file has only 3 actions"},
      {"0F0,(0F1;0F2)OVERLAP_F_B\n", "row 1, cell 2: `(0F1;0F2)OVERLAP_F_B` is no fused pair"},
      {"0F0,(0F1)OVERLAP_F_B\n", "is no fused pair"},
      {"0F0,(0F1;0B0;0B1)OVERLAP_F_B\n", "is no fused pair"},
      {"0F0,OVERLAP_F_B\n", "is no fused pair"},
  };
  for (const auto& [text, reason] : cases) {
    EXPECT_NE(refusal(text).find(reason), std::string::npos) << text << "\n" << refusal(text);
  }
  EXPECT_NE(refusal(std::string("0F0,\x01\xff\x1b[2J\n")).find("`???[2J`"), std::string::npos);
  EXPECT_THROW(read_schedule_csv("/nonexistent/file.csv"), std::invalid_argument);
  EXPECT_THROW(read_schedule_csv("/"), std::invalid_argument);
}

// Mutated files: either refused with one message, or a schedule that validation and simulation can handle.
TEST(ScheduleCsv, MutatedFilesNeverCrash) {
  std::mt19937 random(20240520);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  std::vector<std::string> seeds;
  for (const std::string& name : schedule_names()) {
    seeds.push_back(csv_of(make_schedule({.name = name, .ranks = 4, .micro_batches = 8})));
    seeds.push_back(csv_of(make_schedule({.name = name, .ranks = 2, .micro_batches = 4})));
  }
  const std::string alphabet = "0123456789FBIWX,;()\n\r \"-+.OVERLAP_F_B\xff";
  int refused = 0;
  int accepted = 0;
  for (int k = 0; k < 20000; ++k) {
    std::string text = seeds[below(seeds.size())];
    const std::size_t edits = 1 + below(3);
    for (std::size_t e = 0; e < edits && !text.empty(); ++e) {
      const std::size_t at = below(text.size());
      switch (below(6)) {
        case 0:
          text[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          text.insert(at, 1, alphabet[below(alphabet.size())]);
          break;
        case 2:
          text.erase(at, 1 + below(4));
          break;
        case 3:
          text.insert(at, text.substr(below(text.size()), below(12)));
          break;
        case 4:
          text.resize(at);
          break;
        case 5:
          std::swap(text[at], text[below(text.size())]);
          break;
      }
    }
    try {
      const Schedule schedule = parse_schedule_csv(text, "fuzz.csv");
      check_schedule(schedule);
      EXPECT_EQ(parse_schedule_csv(csv_of(schedule), "again").lists, schedule.lists);
      ++accepted;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace train_gpt

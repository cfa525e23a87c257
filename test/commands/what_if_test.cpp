// `train_gpt whatif` on records that were written here, of steps of which all is known.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "commands/run/record_header.h"
#include "pipeline/measure/records_file.h"
#include "pipeline/plan/partition.h"
#include "pipeline/schedule/catalog.h"
#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

constexpr int kRanks = 2, kMicroBatches = 4;

// F = I = W = 10 ms were planned; rank 1 takes twice as long.
Costs planned_costs() { return {.forward = {10}, .input = {10}, .weight = {10}}; }
Costs slow_costs() { return {.forward = {10, 20}, .input = {10, 20}, .weight = {10, 20}}; }

RecordHeader header_of(const Schedule& schedule) {
  RecordHeader header;
  std::istringstream words(
      "./train_gpt train --device timed --cost-forward 10 --cost-input 10 --cost-weight 10 --schedule 1f1b "
      "--micro-batches 4 --micro-batch-size 1 --seq-len 16 --layers 4 --heads 2 --hidden 32 --vocab 300 --steps 3");
  for (std::string word; words >> word;) header.command.push_back(word);
  header.ranks = kRanks;
  header.model = {.layers = 4, .heads = 2, .hidden = 32, .vocab = 300, .max_seq_len = 16};
  header.timed = true;
  header.schedule = schedule;
  header.planned = stage_costs(planned_costs(), schedule.placement);
  header.partition = uniform_partition(header.model, schedule.placement.depth());
  header.units = estimated_unit_costs(header.model, 16, kRanks);
  return header;
}

// Three steps as the simulator runs them.
void write_records(const std::string& path) {
  const Schedule schedule = make_schedule({.name = "1f1b", .ranks = kRanks, .micro_batches = kMicroBatches});
  const Simulation run = simulate(schedule, slow_costs());
  std::vector<StepRecord::Rank> ranks;
  std::vector<std::int64_t> numbers;
  for (int rank = 0; rank < kRanks; ++rank) {
    StepRecord::Rank& it = ranks.emplace_back(StepRecord::Rank{1000, {}});
    for (std::size_t i = 0; i < schedule.actions(rank).size(); ++i) {
      const Interval& interval = run.intervals[static_cast<std::size_t>(rank)][i];
      it.numbers.push_back(static_cast<float>(interval.start));
      if (schedule.actions(rank)[i].op == Op::backward)
        it.numbers.push_back(static_cast<float>((interval.start + interval.end) / 2));
      it.numbers.push_back(static_cast<float>(interval.end));
    }
    numbers.push_back(static_cast<std::int64_t>(it.numbers.size()));
  }
  RecordsWriter writer(path, to_json(header_of(schedule)), numbers, 1 << 20);
  for (int step = 0; step < 3; ++step) writer.write({step, run.makespan + 5, ranks});
  writer.flush();
}

struct Row {
  std::string what;
  double ms = 0;
};

class WhatIfCommand : public testing::Test {
 protected:
  WhatIfCommand() {
    write_records(folder_ / "records.bin");
    const ProgramRun run = run_program(0, "whatif " + folder_.path());
    EXPECT_EQ(run.status, 0) << run.output;
    output_ = run.output;
    std::istringstream lines(output_);
    bool in_table = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("Each row")) break;
      const std::size_t gap = line.find("  ");
      if (in_table && gap != std::string::npos) rows_.push_back({line.substr(0, gap), std::stod(line.substr(gap))});
      in_table = in_table || line.starts_with("if ");
    }
  }

  double ms_of(const std::string& what) const {
    for (const Row& row : rows_)
      if (row.what == what) return row.ms;
    ADD_FAILURE() << "no row " << what << " in\n" << output_;
    return 0;
  }

  Folder folder_;
  std::string output_;
  std::vector<Row> rows_;
};

double simulated(const std::string& name, int micro_batches, const Costs& costs) {
  return simulate(make_schedule({.name = name, .ranks = kRanks, .micro_batches = micro_batches}), costs).makespan;
}

// Rank 1 works 4 x 60 ms, 10 come before and 20 after: 270. Were it as fast as planned: (4 + 1) x 30.
TEST_F(WhatIfCommand, SaysWhatASlowRankCosts) {
  EXPECT_NE(output_.find("3 steps of 3 on record, schedule 1f1b: 270 ms from first to last action, 275 of the whole"),
            std::string::npos)
      << output_;
  EXPECT_NE(output_.find("S = T / T_ideal = 1.800: 150 ms"), std::string::npos) << output_;
  EXPECT_DOUBLE_EQ(ms_of("rank 1 as fast as the mean of the others"), 150);
  for (const Row& row : rows_) EXPECT_NE(row.what, "rank 0 as fast as the mean of the others");  // it would be slower
}

TEST_F(WhatIfCommand, SimulatesOtherSchedulesWithRanksAsSlowAsTheyWere) {
  EXPECT_NEAR(ms_of("schedule zb-h1"), simulated("zb-h1", 4, slow_costs()), 0.01);
  EXPECT_NEAR(ms_of("schedule gpipe"), simulated("gpipe", 4, slow_costs()), 0.01);
  EXPECT_NEAR(ms_of("twice the micro-batches, for the same tokens"), simulated("1f1b", 8, slow_costs()) / 2, 0.01);
}

TEST_F(WhatIfCommand, SortsByWhatIsGainedAndSaysHowToTryIt) {
  ASSERT_GT(rows_.size(), 4u);
  for (std::size_t i = 1; i < rows_.size(); ++i) EXPECT_LE(rows_[i - 1].ms, rows_[i].ms) << rows_[i].what;
  EXPECT_NE(output_.find("schedule zb-h1:\n    mpirun -n 2 ./train_gpt train --device timed "), std::string::npos);
  EXPECT_NE(output_.find("--steps 3 --schedule zb-h1\n"), std::string::npos) << output_;
  EXPECT_EQ(count(output_, "link 0-1 free"), 0);  // links took no time
}

TEST_F(WhatIfCommand, NamesTheFileThatIsNone) {
  std::ofstream(folder_ / "records.bin", std::ios::trunc) << "tgptrec1";
  const ProgramRun run = run_program(0, "whatif " + folder_.path());
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.output.find(folder_ / "records.bin"), std::string::npos) << run.output;
}

}  // namespace
}  // namespace train_gpt::test

// `train_gpt whatif DIR`: the time that a step of a run would take with one thing changed.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "commands/cli/wording.h"
#include "commands/commands.h"
#include "commands/report/report_log.h"
#include "commands/run/replay.h"
#include "commands/run/setup.h"
#include "commands/what_if_rows.h"
#include "pipeline/draw/markup.h"
#include "pipeline/draw/table.h"
#include "pipeline/schedule/flushless.h"

namespace train_gpt {
namespace {

constexpr std::size_t kMostSteps = 32;

std::string with_sign(double fraction) {
  char text[40];
  std::snprintf(text, sizeof text, "%+.1f%%", 100 * fraction);
  return text;
}

double replayed(const WhatIfRow& row, const RecordHeader& header) {
  constexpr int kTimes = 5;
  PlanRequest request;
  request.model = header.model;
  request.precision = header.precision;
  request.schedule = row.replay.schedule;
  request.partition = row.replay.partition;
  const Options options = parse_options({header.command.begin() + 1, header.command.end()});
  request.batch = batch_shape(options, row.replay.schedule);
  request.batch.micro_batches = row.replay.schedule.micro_batches;
  request.computes = false;
  return replay_ms(make_plan(request), row.replay.durations, row.replay.links, kTimes);
}

std::string table_of(const std::vector<WhatIfRow>& rows, const RecordHeader& header, double now, bool verify) {
  std::vector<std::vector<std::string>> cells = {{"if", "step ms", "change"}};
  if (verify) cells[0].insert(cells[0].end(), {"one step: simulated", "replayed", "off by"});
  for (const WhatIfRow& row : rows) {
    cells.push_back({row.what, with_digits(row.ms, 5), with_sign(row.ms / now - 1)});
    if (!verify) continue;
    const double predicted = row.replay.predicted_ms, measured = replayed(row, header);
    cells.back().insert(cells.back().end(),
                        {with_digits(predicted, 5), with_digits(measured, 5), with_sign(measured / predicted - 1)});
  }
  return draw_table(cells);
}

void print_commands(const std::vector<WhatIfRow>& rows, const std::string& directory) {
  std::printf("\nto try them:\n");
  for (const WhatIfRow& row : rows)
    if (!row.command.empty())
      std::printf("  %s:\n    %s\n", printable(row.what).c_str(), printable(row.command).c_str());
  std::printf("  each, on the timed device with the recorded durations:\n    train_gpt whatif %s --verify\n",
              printable(directory).c_str());
}

// Says why a run has no records, where its log tells.
void refuse_without_flush(const std::string& directory) {
  const std::string log = directory + "/log.jsonl";
  if (!std::filesystem::exists(log)) return;
  const nlohmann::ordered_json plan = read_log(log).plan;
  const std::string schedule = plan.is_object() ? plan.value("schedule", "") : "";
  if (!is_flushless(schedule)) return;
  throw std::invalid_argument(directory + ": this run has --schedule " + schedule +
                              ", which never flushes, and keeps no records: whatif replays steps that begin and end "
                              "with an empty pipe. Ask it of a few steps with 1f1b on the same ranks");
}

}  // namespace

int run_whatif(const Options& options) {
  const std::string directory = options.run.output.empty() ? kLatestRun : options.run.output;
  const std::string path = directory + "/records.bin";
  if (!std::filesystem::exists(path)) refuse_without_flush(directory);
  const Records records = read_records(path);
  RecordHeader header;
  std::optional<WhatIf> what_if;
  try {
    header = record_header_from_json(records.header);
    what_if.emplace(recorded_steps(records, header, kMostSteps));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(path + ": " + error.what());
  }
  const double now = what_if->replayed_ms();
  const double ideal = what_if->makespan_if(what_if->every_rank_as_its_peers());
  std::printf("%s of %zu on record, schedule %s: %.5g ms from first to last action, %.5g of the whole step\n",
              counted(what_if->steps(), "step").c_str(), records.steps.size(),
              printable(what_if->schedule().name).c_str(), what_if->measured_ms(), what_if->whole_step_ms());
  std::printf("simulated again with what every action took: %.5g ms (%s)\n", now,
              with_sign(now / what_if->measured_ms() - 1).c_str());
  std::printf("S = T / T_ideal = %.3f: %.5g ms, were every rank as fast as the median one\n\n", now / ideal, ideal);

  std::vector<std::string> notes;
  std::vector<WhatIfRow> rows = rows_of_same_lists(*what_if, header);
  try {
    for (WhatIfRow& row : rows_of_other_plans(*what_if, header, options.pipeline.memory_limit, notes))
      rows.push_back(std::move(row));
  } catch (const std::invalid_argument& error) {
    notes.push_back(std::string("other plans are not looked at: ") + error.what());
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.ms < b.ms; });
  std::printf("%sEach row changes one thing; the gains do not add. Slow is what was measured over what was planned.\n",
              printable(table_of(rows, header, now, options.verify)).c_str());
  for (const std::string& note : notes) std::printf("note: %s\n", printable(note).c_str());
  print_commands(rows, directory);
  return 0;
}

}  // namespace train_gpt

// --help's heading Run.
#include "commands/cli/options_groups.h"

namespace train_gpt {
namespace {

using Value = OptionValue;

constexpr int kFewestSteps = 6;  // that have some with a full pipe

void set_checkpoint_every(Options& o, const Value& v) {
  const bool steps = !v.is_time();
  o.run.checkpoint_every = steps ? v.integer<std::int64_t>(0, kLargestSteps) : 0;
  o.run.checkpoint_seconds = steps ? 0 : v.seconds(1, kLargestTime);
}

}  // namespace

std::vector<OptionSpec> run_options() {
  return {
      {"steps", "N", "1000", kTrain, "in total, including those before a resume",
       [](Options& o, const Value& v) { o.run.steps = v.integer<std::int64_t>(1, kLargestSteps); }},
      {"steps", "N", "12", kSimulate, "of a schedule that never flushes, from fill to drain",
       [](Options& o, const Value& v) { o.simulate.steps = v.integer<int>(kFewestSteps, kLargestCount); }},
      {"val-every", "N", "100", kTrain, "validate before every Nth step and after the last; 0: after the last",
       [](Options& o, const Value& v) { o.run.val_every = v.integer<std::int64_t>(0, kLargestSteps); }},
      {"val-batches", "K", nullptr, kTrain | kEvaluate,
       "batches of a step's rows from the start of --val-data; without it 4, or fewer if the data end",
       [](Options& o, const Value& v) { o.run.val_batches = v.integer<std::int64_t>(1, kLargestSteps); }},
      {"eval-every", "N", "0", kTrain,
       "answer --multiple-choice before every Nth step and after the last; 0: after the last",
       [](Options& o, const Value& v) { o.run.eval_every = v.integer<std::int64_t>(0, kLargestSteps); }},
      {"sample-every", "N", "0", kTrain, "print generated text every N steps; 0: never",
       [](Options& o, const Value& v) { o.run.sample_every = v.integer<std::int64_t>(0, kLargestSteps); }},
      {"output", "DIR", nullptr, kTrain,
       "folder of log.jsonl and checkpoints, for this run alone; without it out/run-K, in a Slurm job out/job-ID",
       [](Options& o, const Value& v) { o.run.output = v.text(); }},
      {"output", "DIR", nullptr, kEvaluate, "folder for a log of the evaluation; without it nothing is written",
       [](Options& o, const Value& v) { o.run.output = v.text(); }},
      {"overwrite", nullptr, nullptr, kTrain | kEvaluate, "replace the run that is in --output",
       [](Options& o, const Value&) { o.run.overwrite = true; }},
      {"output", "DIR", nullptr, kStatus, "the run's folder (DIR alone is enough); without it out/latest",
       [](Options& o, const Value& v) { o.run.output = v.text(); }},
      {"checkpoint-every", "N|TIME", "15min", kTrain,
       "write a checkpoint every N steps, or every TIME but in at most 2% of the time, and after the last step; 0: "
       "only "
       "then",
       set_checkpoint_every},
      {"time-limit", "TIME", nullptr, kTrain, "stop with a checkpoint before this time is over, such as 3h50m",
       [](Options& o, const Value& v) { o.run.time_limit = v.seconds(1, kLargestTime); }},
      {"max-skipped", "N", "0", kTrain,
       "skip up to N steps whose loss or gradient norm is not finite; the next one ends the run",
       [](Options& o, const Value& v) { o.run.max_skipped = v.integer<std::int64_t>(0, kLargestSteps); }},
      {"stall-timeout", "TIME", "120s", kTrain | kEvaluate,
       "end the run when a rank shows no sign of life for this time",
       [](Options& o, const Value& v) { o.run.stall_timeout = v.seconds(1, kLargestTime); }},
      {"records", "BYTES", "64MiB", kTrain,
       "limit of records.bin, the times of every step on every rank for `train_gpt whatif`; 0: no file",
       [](Options& o, const Value& v) { o.run.records = v.raw() == "0" ? 0 : v.bytes(); }},
      {"keep", "K", "3", kTrain, "keep the newest K checkpoints",
       [](Options& o, const Value& v) { o.run.keep = v.integer<int>(1, kLargestCount); }},
      {"resume", "latest|auto|PATH", nullptr, kTrain,
       "go on from a checkpoint, ignoring --init; latest: the newest in --output; auto: the same, or a new start if "
       "none",
       [](Options& o, const Value& v) { o.run.resume = v.text(); }},
      {"log-every", "N", "1", kTrain, "print the line of every Nth step; log.jsonl has all of them",
       [](Options& o, const Value& v) { o.run.log_every = v.integer<std::int64_t>(1, kLargestSteps); }},
      {"quiet", nullptr, nullptr, kTrain, "print only notes, errors and the last line",
       [](Options& o, const Value&) { o.run.quiet = true; }},
      {"final-timeline", "true|false", "true", kTrain,
       "at the end, print the timeline of one step and a table of its time",
       [](Options& o, const Value& v) { o.run.final_timeline = v.boolean(); }},
      {"trace", "FILE", nullptr, kTrain, "write a Chrome/Perfetto trace",
       [](Options& o, const Value& v) { o.run.trace = v.text(); }},
      {"svg", "FILE", nullptr, kTrain, "draw the timeline of one step, measured above predicted",
       [](Options& o, const Value& v) { o.run.svg = v.text(); }},
      {"threads", "N", nullptr, kComputing,
       "per rank; without it OMP_NUM_THREADS, else the host's cores divided by its ranks",
       [](Options& o, const Value& v) { o.run.threads = v.integer<int>(1, kLargestThreads); }}};
}

}  // namespace train_gpt

#include "commands/cli/options_check.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <stdexcept>
#include <vector>

#include "commands/cli/given_options.h"
#include "commands/cli/options_value.h"
#include "model/config.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/flushless.h"
#include "pipeline/search/search.h"

namespace train_gpt {
namespace {

void require(const Given& given, const std::string& command, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!given.contains(name)) refuse(command + " needs --" + name + "; see train_gpt " + command + " --help");
  }
}

void check_required(const Options& options, const Given& given) {
  const std::string command = to_string(options.command);
  if (options.command == Command::evaluate && !given.contains("multiple-choice")) {
    require(given, command, {"val-data"});
  }
  if (options.command == Command::convert) require(given, command, {"init", "output"});
  if (options.command == Command::prepare) require(given, command, {"text", "output"});
  if (options.command == Command::simulate && !given.contains("schedule-file")) require(given, command, {"stages"});
}

void check_data(const Options& options, const Given& given) {
  const std::string other = first_given(given, {"train-data", "val-data"});
  if (given.contains("data") && !other.empty())
    refuse("--data and " + other + " contradict each other: give one of them");
  if (options.command != Command::prepare) return;
  const PrepareOptions& prepare = options.prepare;
  const std::string needs_folder = first_given(given, {"val-fraction", "shard-tokens"});
  if (prepare.output.ends_with(".bin") && !needs_folder.empty()) {
    refuse(needs_folder + " makes several files: give a folder as --output, not " + prepare.output);
  }
  const bool learns = prepare.tokenizer == "learn" || (prepare.tokenizer.empty() && !prepare.output.ends_with(".bin"));
  if (given.contains("vocab") && !learns)
    refuse("--vocab is the size of a vocabulary to learn; it needs --tokenizer learn");
  const bool bytes = prepare.tokenizer == "bytes" || (prepare.tokenizer.empty() && prepare.output.ends_with(".bin"));
  if (given.contains("pattern") && bytes)
    refuse("--pattern has no meaning for bytes, which are not cut; give --tokenizer");
}

void check_model(const Options& options, const Given& given) {
  const ModelOptions& model = options.model;
  const std::string size = first_given(given, {"layers", "heads", "hidden"});
  if (!size.empty() && given.contains("model"))
    refuse("--model and " + size + " contradict each other: give one of them");
  if (!size.empty() && !(model.layers && model.heads && model.hidden)) {
    refuse(size + " alone does not make a model: give --layers, --heads and --hidden together, or --model");
  }
  if (model.layers) {
    ModelConfig sizes;
    sizes.layers = *model.layers;
    sizes.heads = *model.heads;
    sizes.hidden = *model.hidden;
    check(sizes);
  }
  const std::string fixed = first_given(given, {"model", "layers", "heads", "hidden", "tied", "vocab", "max-seq-len"});
  if (!model.init_file.empty() && !fixed.empty()) {
    refuse(fixed + " and --init " + model.init_file +
           " contradict each other: the file gives the sizes; leave out one");
  }
  const std::int64_t positions = model.max_seq_len.value_or(kDefaultMaxSeqLen);
  if (model.init_file.empty() && options.command != Command::simulate && options.batch.seq_len > positions) {
    refuse("--seq-len " + std::to_string(options.batch.seq_len) + " exceeds --max-seq-len " +
           std::to_string(positions) + "; raise --max-seq-len or lower --seq-len");
  }
}

// Rows, tokens and samples are counted in 64 bits.
void check_batch(const Options& options) {
  const BatchOptions& batch = options.batch;
  std::int64_t tokens = 1;
  for (const std::int64_t factor : {batch.seq_len, batch.micro_batch_size, std::int64_t{batch.micro_batches},
                                    std::int64_t{batch.data_parallel}, options.run.steps}) {
    if (__builtin_mul_overflow(tokens, factor, &tokens)) {
      refuse("--seq-len, --micro-batch-size, --micro-batches, --data-parallel and --steps together make more than " +
             std::string("2^63 tokens; lower one of them"));
    }
  }
  const std::string zero = "--zero " + std::to_string(batch.zero);
  const bool has_replicas = batch.data_parallel > 1 || (options.layouts.ranks > 0 && !options.layouts.holds_replicas);
  if (batch.zero > 0 && !has_replicas) {
    refuse(zero + " shares state out to replicas: give --data-parallel 2 or more");
  }
  if (options.command == Command::train && options.costs.reduction > 0 &&
      (options.device.device != DeviceKind::timed || batch.data_parallel == 1)) {
    refuse("--cost-reduction is for the replicas of --device timed: give --data-parallel 2 or more with it");
  }
  if (batch.rank_order == RankOrder::replicas && !has_replicas) {
    refuse("--rank-order replicas has no meaning without replicas: give --data-parallel 2 or more");
  }
  if (batch.zero > 1 && is_flushless(options.pipeline.schedule())) {
    refuse(zero + " keeps gradients or parameters in windows that a step empties, and --schedule " +
           options.pipeline.schedule() + " has two steps at once: give --zero 1");
  }
  if (batch.zero > 2 && options.optimizer.optimizer_step == OptimizerStep::optimistic) {
    refuse(zero +
           " keeps no whole copy of the parameters, of which --optimizer-step optimistic needs two: leave out one, " +
           "or take --zero 2");
  }
  const int groups = batch.accumulation_groups.value_or(batch.data_parallel);
  if (groups == batch.data_parallel) return;
  if (!std::has_single_bit(static_cast<unsigned>(groups)) || groups % batch.data_parallel != 0) {
    refuse("--accumulation-groups " + std::to_string(groups) + ": must be a power of two that --data-parallel " +
           std::to_string(batch.data_parallel) + " divides");
  }
}

void check_delay_correction(const Options& options) {
  const std::string given = "--delay-correction error-feedback";
  if (options.pipeline.schedule() != "2bw") {
    refuse(given + " corrects gradients that are a step old, which --schedule " + options.pipeline.schedule() +
           " does not have; 2bw takes it");
  }
  if (options.batch.zero > 0) {
    refuse(given + " keeps whole updates, which --zero " + std::to_string(options.batch.zero) +
           " shares out: leave out one");
  }
  if (options.device.device == DeviceKind::cuda && options.device.precision != Precision::fp32) {
    refuse(given + " computes in fp32: give --precision fp32 with --device cuda");
  }
}

void check_training(const Options& options, const Given& given) {
  if (given.contains("eval-every") && options.data.multiple_choice.empty()) {
    refuse("--eval-every needs --multiple-choice FILE.jsonl");
  }
  if (options.run.overwrite && options.run.output.empty())
    refuse("--overwrite needs --output DIR, the folder to empty");
  if (options.run.overwrite && !options.run.resume.empty()) {
    refuse("--overwrite and --resume contradict each other: the one gives up the run that the other goes on with");
  }
  if (options.command != Command::train) return;
  const std::string validation = first_given(given, {"val-every", "val-batches"});
  if (!validation.empty() && options.data.val_data.empty()) refuse(validation + " needs --val-data");
  if (options.optimizer.warmup_steps > options.run.steps) {
    refuse("--warmup-steps " + std::to_string(options.optimizer.warmup_steps) + " is more than --steps " +
           std::to_string(options.run.steps) + ": the run would end before its learning rate is reached");
  }
  if (options.run.quiet && !first_given(given, {"log-every", "final-timeline"}).empty()) {
    refuse("--quiet and " + first_given(given, {"log-every", "final-timeline"}) +
           " contradict each other: --quiet prints none of it; leave out one");
  }
  if (given.contains("min-lr-fraction") && options.optimizer.lr_schedule == LearningRateShape::constant) {
    refuse("--min-lr-fraction has no meaning with --lr-schedule constant; leave out one");
  }
  if (given.contains("muon-scale") && options.optimizer.optimizer != OptimizerKind::muon) {
    refuse("--muon-scale has no meaning without --optimizer muon");
  }
  if (options.optimizer.delay_correction) check_delay_correction(options);
}

// pipedream: every rank updates its own parameters after every backward, alone.
void check_stashing(const Options& options) {
  const std::string updates = "--schedule pipedream updates after every backward";
  if (options.batch.data_parallel > 1) {
    refuse(updates + ", where replicas would have to add up their gradients: give --data-parallel 1, or take 2bw");
  }
  if (options.batch.accumulation_groups.value_or(1) > 1) {
    refuse(updates + ", by the gradient of one micro-batch: leave out --accumulation-groups");
  }
  if (options.model.init_file.empty() && options.model.tied) {
    refuse(updates + ", and both ends of a tied embedding would have to wait for each other: give --tied false, or " +
           "take 2bw");
  }
  if (options.command != Command::train) return;
  if (options.optimizer.grad_clip > 0) {
    refuse(updates + ", before the norm of the gradients is known: give --grad-clip 0, or take 2bw, which clips");
  }
  if (options.run.max_skipped > 0) {
    refuse(updates + ", before anybody knows whether the step is finite: leave out --max-skipped, or take 2bw");
  }
}

std::string fixed_chunks(const std::string& name) {
  return "--schedule " + name + " has " + std::to_string(is_flushless(name) ? 1 : default_chunks(name)) + " per rank";
}

// With several schedules (simulate) an option must apply to at least one of them.
void check_schedule(const Options& options, const Given& given) {
  const PipelineOptions& pipeline = options.pipeline;
  const std::string chosen = first_given(given, {"schedule", "chunks", "group-size"});
  if (!pipeline.schedule_file.empty()) {
    if (!chosen.empty())
      refuse(chosen + " and --schedule-file contradict each other: the file is the schedule; leave out one");
    return;
  }
  const std::vector<std::string>& names = pipeline.schedules;
  const auto takes_these_chunks = [&](const std::string& name) { return pipeline.chunks_for(name) == pipeline.chunks; };
  const bool searched = options.layouts.ranks > 0 && !given.contains("schedule");
  const bool automatic = searched || std::find(names.begin(), names.end(), "auto") != names.end();
  if (automatic && given.contains("chunks")) {
    for (const int chunks : pipeline.auto_chunks)
      if (chunks > kMostSearchedChunks)
        refuse("--chunks " + std::to_string(chunks) + ": --schedule auto considers at most " +
               std::to_string(kMostSearchedChunks));
  } else if (pipeline.auto_chunks.size() > 1 && given.contains("chunks")) {
    refuse("--chunks takes a list for --schedule auto alone; give one number");
  }
  if (given.contains("search-seconds") && !automatic) refuse("--search-seconds has no meaning without --schedule auto");
  if (!automatic && pipeline.chunks != 0 && std::none_of(names.begin(), names.end(), takes_these_chunks)) {
    refuse("--chunks " + std::to_string(pipeline.chunks) + " is not possible: " + fixed_chunks(names.front()));
  }
  if (given.contains("warmup-factor") && std::none_of(names.begin(), names.end(), takes_warmup_factor)) {
    refuse("--warmup-factor has no meaning for --schedule " + names.front() + "; 2bw takes it");
  }
  if (options.command != Command::simulate && stashes_weights(names.front())) check_stashing(options);
  if (options.optimizer.optimizer_step == OptimizerStep::optimistic && is_flushless(names.front())) {
    refuse("--optimizer-step optimistic updates ahead of the norm, which --schedule " + names.front() +
           " has no need of: its norm is never waited for; leave out one");
  }
  const auto takes_group = [&](const std::string& name) { return pipeline.group_size_for(name) != 0; };
  if (pipeline.group_size != 0 && std::none_of(names.begin(), names.end(), takes_group)) {
    std::vector<std::string> takers;
    std::copy_if(schedule_names().begin(), schedule_names().end(), std::back_inserter(takers), takes_group_size);
    refuse("--group-size has no meaning for --schedule " + names.front() + "; " + either(takers) + " take it");
  }
}

void check_device(const Options& options, const Given& given) {
  const DeviceOptions& device = options.device;
  if (device.device == DeviceKind::cpu && device.precision == Precision::bf16) {
    refuse("--precision bf16 needs --device cuda; the cpu computes in fp32");
  }
  const std::string cost = first_given(
      given, {"cost-forward", "cost-input", "cost-weight", "cost-comm", "cost-bandwidth", "cost-fused", "stages"});
  const bool runs = options.command == Command::train || options.command == Command::evaluate;
  if (runs && cost == "--stages" && device.device != DeviceKind::timed) {
    refuse(
        "--stages has no meaning where time is real: there, the ranks of a pipeline are what mpirun -n starts, divided "
        "by " +
        std::string("--data-parallel; it needs --device timed, simulate or plan"));
  }
  if (runs && !cost.empty() && device.device != DeviceKind::timed) {
    refuse(cost + " has no meaning where time is real; it needs --device timed, simulate or plan");
  }
  if (options.costs.given && !options.pipeline.profile.empty()) {
    refuse(cost + " and --profile contradict each other: both say what things cost; leave out one");
  }
}

void check_simulation(const Options& options, const Given& given) {
  if (options.command != Command::simulate) return;
  const std::string size = first_given(given, {"model", "layers", "heads", "hidden", "vocab", "max-seq-len", "seq-len",
                                               "micro-batch-size", "precision"});
  if (!size.empty() && !given.contains("cost-bandwidth") && !options.costs.cluster_given) {
    refuse(size + " only tells how large a message is, which has no meaning without --cost-bandwidth or --link-inside");
  }
  if (options.simulate.ascii && options.simulate.json) {
    refuse("--ascii and --json contradict each other: --json prints one array and nothing else");
  }
  const std::vector<std::string>& names = options.pipeline.schedules;
  if (given.contains("csv") && names.size() > 1) refuse("--csv writes one schedule; name one with --schedule");
  const std::string instead = first_given(given, {"ascii", "json", "csv", "html", "expect"});
  if (options.simulate.pareto && !instead.empty()) {
    refuse("--pareto and " + instead + " contradict each other: --pareto prints a table of its own; leave out one");
  }
  if (options.simulate.pareto && names != std::vector<std::string>{"auto"}) {
    refuse("--pareto looks at all schedules and the search: give --schedule auto");
  }
  if (given.contains("html") && names.size() > 1) refuse("--html shows one schedule; name one with --schedule");
  if (given.contains("steps") && std::none_of(names.begin(), names.end(), is_flushless)) {
    refuse("--steps has no meaning for --schedule " + names.front() + ", of which one step says all; " +
           either(flushless_names()) + " take it");
  }
  if (given.contains("objective") && std::find(names.begin(), names.end(), "auto") == names.end()) {
    refuse("--objective has no meaning without --schedule auto");
  }
}

void check_generation(const Options& options, const Given& given) {
  if (options.command != Command::generate) return;
  if (options.generate.interactive && given.contains("prompt")) {
    refuse("--interactive and --prompt contradict each other: prompts are typed; leave out one");
  }
}

void check_conversion(const Options& options, const Given& given) {
  if (given.contains("shard-size") && options.convert.output.ends_with(".bin")) {
    refuse("--shard-size is for a folder as --output: llm.c's model is one file");
  }
}

}  // namespace

void check_together(const Options& options, const Given& given) {
  check_required(options, given);
  check_data(options, given);
  check_model(options, given);
  check_batch(options);
  check_training(options, given);
  check_generation(options, given);
  check_conversion(options, given);
  check_schedule(options, given);
  check_device(options, given);
  check_links(options, given);
  check_simulation(options, given);
}

}  // namespace train_gpt

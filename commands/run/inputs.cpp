#include "commands/run/inputs.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "commands/cli/wording.h"
#include "commands/run/disk_space.h"
#include "commands/run/results.h"
#include "commands/run/run_tokenizer.h"
#include "model/range_file.h"
#include "pipeline/simulate/check_schedule.h"

namespace train_gpt {
namespace {

// The timed device computes nothing, so it has no losses.
void check_timed(const Options& options, const RunInputs& inputs) {
  const int stages = options.costs.stages;
  if (stages != 0 && stages != inputs.layout.pipeline) {
    throw std::invalid_argument("--stages " + std::to_string(stages) + ", but a pipeline here has " +
                                counted(inputs.layout.pipeline, "rank") + ": leave the option out");
  }
  const char* needs_parameters = options.command != Command::train       ? "evaluate"
                                 : !options.data.val_data.empty()        ? "--val-data"
                                 : !options.data.multiple_choice.empty() ? "--multiple-choice"
                                 : options.run.sample_every > 0          ? "--sample-every"
                                 : options.run.checkpoint_every > 0      ? "--checkpoint-every"
                                 : !options.run.resume.empty()           ? "--resume"
                                                                         : nullptr;
  if (needs_parameters == nullptr) return;
  throw std::invalid_argument(std::string(needs_parameters) +
                              " has no meaning with --device timed, which computes nothing: leave out one");
}

// The data's tokenizer, so that text and tokens fit together; else the model's.
void open_tokenizer(const Options& options, RunInputs& inputs) {
  if (inputs.train_data) inputs.tokenizer = tokenizer_of_tokens(options.data.train_data, "--train-data");
  if (!inputs.tokenizer && inputs.val_data) inputs.tokenizer = tokenizer_of_tokens(options.data.val_data, "--val-data");
  if (!inputs.tokenizer && (!options.model.init_file.empty() || is_byte_level(inputs.model.vocab))) {
    inputs.tokenizer = tokenizer_of_model(options.model.init_file, inputs.model);
  }
  if (options.data.multiple_choice.empty()) return;
  if (!inputs.tokenizer) {
    throw std::invalid_argument("--multiple-choice needs the model's tokenizer: tokenizer.json beside it");
  }
  inputs.questions = read_questions(options.data.multiple_choice);
}

// Everything that needs files or sizes, but no other rank.
void open_files(Session& session, const Options& options, RunInputs& inputs) {
  const bool trains = options.command == Command::train;
  inputs.layout = make_layout(session.world().size(), options.batch.data_parallel);
  inputs.model = model_config(options);
  inputs.named = named_schedule(options, inputs.layout.pipeline);
  if (inputs.named) inputs.notices = check_schedule(*inputs.named).notices;
  const BatchShape batch = batch_shape(options, inputs.named);
  if (trains && !std::has_single_bit(static_cast<unsigned>(batch.replicas))) {
    inputs.notices.push_back("--data-parallel " + std::to_string(batch.replicas) +
                             " is no power of two: replicas are summed in rank order, so a run of other replicas has "
                             "other bits");
  }
  check_positions(options, inputs.model);
  if (session.is_timed()) {
    check_timed(options, inputs);
  } else if (trains) {
    inputs.train_data.emplace(options.data.train_data, "--train-data", batch.seq_len, inputs.model.vocab);
    inputs.train_data->require_rows(batch.step_rows());
    std::vector<std::string> files;
    for (const TokenFile& shard : inputs.train_data->shards()) files.push_back(shard.path());
    inputs.manifest = manifest_of_run(options, inputs.model, batch, inputs.train_data->window_count(),
                                      identities_of(files), to_string(session.device().arithmetic()));
    inputs.manifest.run = inputs.folder->run();
  }
  if (!options.data.val_data.empty()) {
    inputs.val_data.emplace(options.data.val_data, "--val-data", batch.seq_len, inputs.model.vocab);
    constexpr std::int64_t kUsual = 4;
    const std::int64_t there = inputs.val_data->window_count() / batch.step_rows();
    inputs.val_batches = options.run.val_batches.value_or(std::clamp<std::int64_t>(there, 1, kUsual));
    inputs.val_data->require_batches(inputs.val_batches, batch.step_rows());
  }
  if (!session.is_timed()) open_tokenizer(options, inputs);
  optimizer_settings(options);
  if (trains) check_replaceable(options.run.output + "/model.bin");  // before the work, not after it
  if (trains && session.is_first()) check_result_files(options.run);
}

// Everything that all ranks must see alike, or they would train a mixture.
std::vector<Seen> files_seen(const Options& options, const RunInputs& inputs) {
  std::vector<Seen> seen = {{"the model", model_line(inputs.model, batch_shape(options, inputs.named))}};
  for (const auto* data : {&inputs.train_data, &inputs.val_data}) {
    if (!*data) continue;
    for (const TokenFile& shard : (*data)->shards()) seen.push_back(seen_file(shard.path()));
  }
  std::vector<std::string> paths = model_files(options.model.init_file);
  paths.insert(paths.end(), {options.pipeline.schedule_file, options.pipeline.profile});
  for (const std::string& path : paths) {
    if (!path.empty()) seen.push_back(seen_file(path));
  }
  return seen;
}

// --resume: finds the checkpoint, and refuses what contradicts it.
void choose_checkpoint(Session& session, const Options& options, RunInputs& inputs) {
  const std::string& wanted = options.run.resume;
  inputs.resumed = find_checkpoint(session.world(), wanted, options.run.output);
  for (const std::string& passed_over : inputs.resumed.passed_over)
    inputs.notices.push_back("passed over " + passed_over);
  if (inputs.resumed.folder.empty() && wanted == "auto") return;
  session.together([&] {
    if (inputs.resumed.folder.empty()) {
      std::string why;
      for (const std::string& passed_over : inputs.resumed.passed_over) why += "; " + passed_over;
      throw std::invalid_argument("--resume " + wanted + ": " +
                                  (wanted == "latest" ? options.run.output + "/checkpoints has no complete checkpoint"
                                                      : "is not a complete checkpoint") +
                                  why);
    }
    require_same_run(inputs.resumed.manifest, inputs.manifest, options.run.steps, inputs.resumed.folder);
  });
  inputs.manifest.counter = inputs.resumed.manifest.counter + 1;
  for (const std::string& changed : changed_settings(inputs.resumed.manifest, inputs.manifest))
    inputs.notices.push_back(changed);
}

}  // namespace

RunInputs open_inputs(Session& session, const Options& options, RunFolder* folder) {
  RunInputs inputs;
  inputs.folder = folder;
  session.together([&] { open_files(session, options, inputs); });
  session.agree([&] { return files_seen(options, inputs); });
  if (!options.run.resume.empty()) choose_checkpoint(session, options, inputs);
  return inputs;
}

void look_for_disk_space(Session& session, const Options& options, RunInputs& inputs) {
  if (session.is_timed()) return;
  session.together([&] {
    if (!session.is_first()) return;
    const DiskSpace space = disk_space(options.run.output, options.run);
    for (std::string& note : check_disk_space(space, options.run, inputs.model, inputs.val_data.has_value()))
      inputs.notices.push_back(std::move(note));
  });
}

}  // namespace train_gpt

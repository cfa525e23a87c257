#include "commands/run/run_saves.h"

#include <cmath>

namespace train_gpt {
namespace {

void is_saved(TrainingRun& run) {
  if (run.under_way.is_checkpoint) {
    run.stopping.checkpoint_took(run.under_way.still + run.background->work_seconds(),
                                 monotonic_seconds() - run.under_way.since);
  }
  run.log->text(run.background->saving().told);
}

// begin: monotonic_seconds() when training began to wait for it.
void save(TrainingRun& run, const Saving& saving, bool is_checkpoint, bool goes_on, double begin) {
  if (run.background && goes_on) {
    run.background->begin(saving);
    run.under_way = {.is_checkpoint = is_checkpoint, .since = begin, .still = monotonic_seconds() - begin};
    return;
  }
  save(*run.trainer, run.session.world(), run.inputs.model, saving);
  const double took = monotonic_seconds() - begin;
  if (is_checkpoint) run.stopping.checkpoint_took(took, took);
  run.log->text(saving.told);
}

}  // namespace

void save_checkpoint(TrainingRun& run, std::int64_t steps_taken, double loss, bool goes_on) {
  finish_saving(run);
  const double begin = monotonic_seconds();
  run.stopping.checkpoint_begins();
  const RunOptions& wanted = run.options.run;
  CheckpointManifest manifest = run.inputs.manifest;
  manifest.step = steps_taken;
  if (std::isfinite(loss)) manifest.loss = loss;
  ++run.inputs.manifest.counter;
  manifest.parameter_hash = run.trainer->parameter_hash();
  if (run.session.is_first()) remove_left_overs(wanted.output);
  save(run, checkpoint_saving(wanted.output, manifest, wanted.keep, run.inputs.tokenizer), /*is_checkpoint=*/true,
       goes_on, begin);
}

void save_best(TrainingRun& run, std::int64_t steps_taken, double validation_loss, bool goes_on) {
  finish_saving(run);
  save(run, run.best->saving(steps_taken, validation_loss, run.inputs.tokenizer), /*is_checkpoint=*/false, goes_on,
       monotonic_seconds());
}

void go_on_saving(TrainingRun& run, const Votes& votes) {
  if (votes[kSavingIsReady] != static_cast<double>(run.session.world().size())) return;
  if (run.background->advance()) is_saved(run);
}

void finish_saving(TrainingRun& run) {
  if (!run.background || !run.background->busy()) return;
  run.background->finish();
  is_saved(run);
}

}  // namespace train_gpt

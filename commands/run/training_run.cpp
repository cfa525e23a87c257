// The steps of a run.
#include "commands/run/training_run.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>

#include "commands/cli/wording.h"
#include "commands/run/command_line.h"
#include "commands/run/step_meter.h"
#include "data/byte_tokenizer.h"
#include "data/sample_order.h"
#include "pipeline/draw/markup.h"

namespace train_gpt {
namespace {

void read_batch(Batch& batch, const TrainingRun& run, std::int64_t step) {
  if (!run.computes()) return;
  const TokenDataset& data = *run.inputs.train_data;
  const SampleOrder order{.windows = data.window_count(),
                          .rows = run.plan.request.batch.step_rows(),
                          .shuffle = run.options.data.shuffle,
                          .seed = run.options.data.seed};
  run.trainer->read_batch(
      batch, [&](std::int32_t* out, std::int64_t row) { data.read_inputs(out, order.window(step, row)); },
      [&](std::int32_t* out, std::int64_t row) { data.read_targets(out, order.window(step, row)); });
}

// Mean loss over --val-batches batches of the validation data; logged.
double validate(TrainingRun& run, std::int64_t step) {
  const TokenDataset& data = *run.inputs.val_data;
  const std::int64_t rows = run.plan.request.batch.step_rows();
  run.state->set_stepping(true);
  Batch batch;
  double sum = 0;
  for (std::int64_t k = 0; k < run.options.run.val_batches; ++k) {
    run.trainer->read_batch(
        batch, [&](std::int32_t* out, std::int64_t row) { data.read_inputs(out, k * rows + row); },
        [&](std::int32_t* out, std::int64_t row) { data.read_targets(out, k * rows + row); });
    sum += run.trainer->validate(batch);
  }
  run.state->set_stepping(false);
  const double loss = sum / static_cast<double>(run.options.run.val_batches);
  run.log->validation(step, loss);
  return loss;
}

void show_sample(TrainingRun& run, std::int64_t step) {
  constexpr std::int64_t kTokens = 120;
  std::string text;
  ByteDecoder decoder;
  const bool bytes = is_byte_level(run.inputs.model.vocab);
  const std::vector<std::int32_t> prompt = {bytes ? kByteEndOfText : 0};
  run.trainer->generate(prompt, kTokens, {.temperature = 0.8}, run.options.data.seed + static_cast<std::uint64_t>(step),
                        [&](std::int32_t id) { text += bytes ? decoder.push(id) : std::to_string(id) + " "; });
  run.log->text("sample after " + counted(step, "step") + ":\n" + text + (bytes ? decoder.finish() : ""));
}

void save_checkpoint(TrainingRun& run, std::int64_t steps_taken, double loss) {
  const double begin = monotonic_seconds();
  CheckpointManifest manifest = run.inputs.manifest;
  manifest.step = steps_taken;
  if (std::isfinite(loss)) manifest.loss = loss;
  ++run.inputs.manifest.counter;
  const std::string folder =
      write_checkpoint(*run.trainer, run.session.world(), run.options.run.output, manifest, run.options.run.keep);
  run.stopping.checkpoint_took(monotonic_seconds() - begin);
  run.log->text("checkpoint written to " + folder);
}

void save_model(TrainingRun& run) {
  if (!run.computes()) return;
  const std::string path = run.options.run.output + "/model.bin";
  run.trainer->save(path, Precision::fp32);
  run.log->text("model written to " + path);
}

// Asked to stop, by `why`: what was measured is shown, and the model is written as it is; there is no end event of a
// run that is not over.
void end_early(TrainingRun& run, StepMeter& meter, std::int64_t steps_taken, const std::string& why) {
  meter.show_results();
  save_model(run);
  const std::string command =
      command_that_goes_on(own_command_line(), run.session.world().size(), run.options.run.output);
  run.log->stopped(steps_taken, why);
  run.log->essential("stopped by " + why + " after " + std::to_string(steps_taken) + " of " +
                     counted(run.options.run.steps, "step") + (run.computes() ? "; to go on: " + command : ""));
  run.state->finish();
}

void end(TrainingRun& run, StepMeter& meter, double last_loss, std::int64_t redone_steps) {
  if (run.inputs.val_data) validate(run, run.options.run.steps);
  if (run.options.run.sample_every > 0) show_sample(run, run.options.run.steps);
  meter.show_results();
  save_model(run);
  run.log->end(run.computes() ? run.trainer->parameter_hash() : "", last_loss,
               run.optimistic() ? std::optional(redone_steps) : std::nullopt);
  run.state->finish();
}

// Within a catch.
[[noreturn]] void end_job(TrainingRun& run) {
  const std::string who = "rank " + std::to_string(run.session.world().rank());
  try {
    throw;
  } catch (const PeerFailure& failure) {
    std::fprintf(stderr, "train_gpt: %s: %s\n", who.c_str(), printable(failure.what()).c_str());
    run.log->failed(failure.what());
  } catch (const NotFinite& failure) {  // of all ranks: the first says so and ends the job
    if (run.session.is_first()) {
      const std::string newest = newest_checkpoint(run.options.run.output);
      std::fprintf(stderr, "train_gpt: error: %s%s\n", printable(failure.what()).c_str(),
                   newest.empty() ? "" : printable(". The newest complete checkpoint is " + newest).c_str());
      std::fflush(stderr);
      run.log->failed(failure.what());
    }
    // The launcher drops what it has not passed on when a job is aborted.
    std::this_thread::sleep_for(run.session.is_first() ? std::chrono::seconds(1) : std::chrono::seconds(20));
  } catch (const LauncherGone& failure) {  // nor does anybody serve MPI_Abort
    std::fprintf(stderr, "train_gpt: error: %s: %s\n", who.c_str(), printable(failure.what()).c_str());
    run.log->failed(failure.what());
    std::fflush(stderr);
    std::_Exit(1);
  } catch (const std::exception& error) {
    const std::string newest = newest_checkpoint(run.options.run.output);
    std::fprintf(stderr, "train_gpt: error: %s: %s%s\n", who.c_str(), printable(error.what()).c_str(),
                 newest.empty() ? "" : printable(". The newest complete checkpoint is " + newest).c_str());
    std::fflush(stderr);
    run.log->failed(error.what());
    run.watchdog->announce(error.what());
  }
  std::fflush(stderr);
  run.session.world().abort(1);
  std::abort();
}

bool due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

}  // namespace

int train(TrainingRun& run) try {
  const RunOptions& wanted = run.options.run;
  const auto validates = [&](std::int64_t s) { return run.inputs.val_data && due(wanted.val_every, s); };
  const auto samples = [&](std::int64_t s) { return s > 0 && due(wanted.sample_every, s); };
  StepMeter meter(run);
  SpikeDetector spikes;
  Batch batch, next;
  double loss = 0;  // of the last step
  if (const FoundCheckpoint& resumed = run.inputs.resumed; !resumed.folder.empty()) {
    loss = resumed.manifest.loss.value_or(std::numeric_limits<double>::quiet_NaN());
  }
  Stopping::Verdict verdict;  // of the last step; a wish to stop stays
  std::int64_t redone_steps = 0;
  run.log->begin_steps();
  for (std::int64_t step = run.inputs.resumed.manifest.step; step < wanted.steps; ++step) {
    run.state->set_step(step);
    if (validates(step)) validate(run, step);
    if (samples(step)) show_sample(run, step);
    const bool last = step + 1 == wanted.steps || !verdict.stop.empty();
    const bool saves = last || verdict.checkpoint || due(wanted.checkpoint_every, step + 1);
    // The next step follows immediately, so that an optimistic one may begin it.
    const bool goes_ahead = run.optimistic() && !last && !saves && !validates(step + 1) && !samples(step + 1);

    meter.align_clocks();
    run.state->set_stepping(true);
    read_batch(batch, run, step);
    if (goes_ahead) read_batch(next, run, step + 1);
    // Runs this rank's list, reduces the gradients, clips them, and updates the parameters.
    const StepResult result = run.trainer->step(step, batch, goes_ahead ? &next : nullptr);
    run.state->set_stepping(false);
    StepReport report = meter.report(step, result);
    report.scores = spikes.add(result.loss, result.grad_norm);
    run.log->step(report);
    if (report.scores.spike && run.session.is_first()) keep_before_spike(wanted.output);

    loss = result.loss;
    run.stopping.step_took(result.ms / 1000);
    verdict = run.stopping.read(result.votes, verdict.stop);
    redone_steps += result.redone ? 1 : 0;
    // An optimistic step may have begun the next one, which is then the last.
    const bool ends = last || (!verdict.stop.empty() && !goes_ahead);
    if (run.computes() && (saves || ends || (verdict.checkpoint && !goes_ahead))) {
      save_checkpoint(run, step + 1, loss);
      verdict.checkpoint = false;
    }
    if (ends && step + 1 < wanted.steps) {
      end_early(run, meter, step + 1, verdict.stop);
      return kStopped;
    }
  }
  end(run, meter, loss, redone_steps);
  return 0;
} catch (...) {
  end_job(run);
}

int evaluate(TrainingRun& run) try {
  const double loss = validate(run, 0);
  run.log->end(run.trainer->parameter_hash(), loss);
  run.state->finish();
  return 0;
} catch (...) {
  end_job(run);
}

}  // namespace train_gpt

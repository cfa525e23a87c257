// The steps of a run.
#include "commands/run/training_run.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>

#include "commands/cli/wording.h"
#include "commands/run/command_line.h"
#include "commands/run/ids_as_text.h"
#include "commands/run/multiple_choice.h"
#include "commands/run/overwritten.h"
#include "commands/run/run_saves.h"
#include "commands/run/run_tokenizer.h"
#include "commands/run/step_meter.h"
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

// Bytes of text per target of the first `windows` windows.
double bytes_per_target(const TokenDataset& data, std::int64_t windows, const Tokenizer& tokenizer) {
  const std::vector<std::int32_t> lengths = tokenizer.byte_lengths();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(data.seq_len()));
  std::int64_t bytes = 0;
  for (std::int64_t window = 0; window < windows; ++window) {
    data.read_targets(ids.data(), window);
    for (const std::int32_t id : ids) {
      if (static_cast<std::size_t>(id) < lengths.size()) bytes += lengths[static_cast<std::size_t>(id)];
    }
  }
  return static_cast<double>(bytes) / static_cast<double>(windows * data.seq_len());
}

// The loss in bits per byte of text, by which models with different tokenizers can be compared.
std::optional<double> bits_per_byte(const TrainingRun& run, double loss) {
  if (!run.inputs.tokenizer) return std::nullopt;
  const std::int64_t windows = run.inputs.val_batches * run.plan.request.batch.step_rows();
  const double bytes = bytes_per_target(*run.inputs.val_data, windows, *run.inputs.tokenizer);
  if (bytes == 0) return std::nullopt;
  return loss / std::log(2.0) / bytes;
}

// Mean loss over --val-batches batches of the validation data; logged.
double validate(TrainingRun& run, std::int64_t step) {
  const TokenDataset& data = *run.inputs.val_data;
  const std::int64_t rows = run.plan.request.batch.step_rows();
  run.state->set_stepping(true);
  Batch batch;
  double sum = 0;
  for (std::int64_t k = 0; k < run.inputs.val_batches; ++k) {
    run.trainer->read_batch(
        batch, [&](std::int32_t* out, std::int64_t row) { data.read_inputs(out, k * rows + row); },
        [&](std::int32_t* out, std::int64_t row) { data.read_targets(out, k * rows + row); });
    sum += run.trainer->validate(batch);
  }
  run.state->set_stepping(false);
  const double loss = sum / static_cast<double>(run.inputs.val_batches);
  run.log->validation(step, loss, bits_per_byte(run, loss));
  return loss;
}

void show_sample(TrainingRun& run, std::int64_t step) {
  constexpr std::int64_t kTokens = 120;
  IdsAsText text(run.inputs.tokenizer ? &*run.inputs.tokenizer : nullptr, run.inputs.model.vocab);
  std::string shown;
  run.trainer->generate({text.first_id()}, kTokens, {.temperature = 0.8},
                        run.options.data.seed + static_cast<std::uint64_t>(step), [&](std::int32_t id) {
                          shown += text.push(id);
                          return true;
                        });
  run.log->text("sample after " + counted(step, "step") + ":\n" + shown + text.finish());
}

MultipleChoiceResult answer(TrainingRun& run, std::int64_t step) {
  const BatchShape& batch = run.plan.request.batch;
  run.state->set_stepping(true);
  const MultipleChoiceResult result =
      answer_questions(*run.trainer, batch, run.inputs.questions, *run.inputs.tokenizer);
  run.state->set_stepping(false);
  run.log->multiple_choice(step, result);
  return result;
}

double validate_and_keep_best(TrainingRun& run, std::int64_t step) {
  const double loss = validate(run, step);
  if (step > 0 && run.best->is_better(loss)) {  // the initial model is no result
    save_best(run, step, loss, /*goes_on=*/step < run.options.run.steps);
  }
  return loss;
}

void save_model(TrainingRun& run) {
  if (!run.computes()) return;
  const std::string path = run.options.run.output + "/model.bin";
  run.trainer->save(path, Precision::fp32);
  if (run.session.is_first()) keep_tokenizer(run.inputs.tokenizer, run.options.run.output);
  run.log->text("model written to " + path);
}

// Ends a run that `why` asked to stop: shows its measurements and writes the model as it is, without an end event,
// since the run is not over.
void end_early(TrainingRun& run, StepMeter& meter, std::int64_t steps_taken, const std::string& why) {
  meter.show_results();
  save_model(run);
  const std::string command =
      command_that_goes_on(own_command_line(), run.session.world().size(), run.options.run.output);
  if (run.session.is_first()) remove_overwritten(run.options.run.output);
  run.log->stopped(steps_taken, why);
  run.log->essential("stopped by " + why + " after " + std::to_string(steps_taken) + " of " +
                     counted(run.options.run.steps, "step") + (run.computes() ? "; to go on: " + command : ""));
  run.state->finish();
}

void end(TrainingRun& run, StepMeter& meter, double last_loss, std::int64_t redone_steps) {
  if (run.inputs.val_data) validate_and_keep_best(run, run.options.run.steps);
  if (!run.inputs.questions.empty()) answer(run, run.options.run.steps);
  if (run.options.run.sample_every > 0) show_sample(run, run.options.run.steps);
  meter.show_results();
  save_model(run);
  if (run.session.is_first()) remove_overwritten(run.options.run.output);
  run.log->end(run.computes() ? run.trainer->parameter_hash() : "", last_loss,
               to_string(run.session.device().arithmetic()),
               run.optimistic() ? std::optional(redone_steps) : std::nullopt);
  run.state->finish();
}

// A folder that has its name now is not this run's.
bool has_no_folder(const TrainingRun& run) { return run.inputs.folder != nullptr && run.inputs.folder->is_lost(); }

void log_failure(TrainingRun& run, const std::string& message) {
  if (!has_no_folder(run)) run.log->failed(message);
}

void put_folder_back(TrainingRun& run) {
  run.inputs.folder->put_back(run.session);
  run.log->put_back();
}

int lost_folder(TrainingRun& run) {
  const std::string message = run.options.run.output +
                              ": the folder, or run.json in it, was removed while the run lived; run.json, log, "
                              "checkpoint and model were written there anew, what else was removed is lost";
  log_failure(run, message);
  if (run.session.is_first()) std::fprintf(stderr, "train_gpt: error: %s\n", printable(message).c_str());
  return 1;
}

// Ranks often fail at once by one cause - a full disk, a file that was cut off - each at another file. The lowest of
// them reports it for all.
bool lower_rank_says_why(const TrainingRun& run) {
  if (run.session.is_first()) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int rank = 0; rank < run.session.world().rank(); ++rank) {
    const auto lower = read_state(run.options.run.output, rank);
    if (lower && !lower->failure.empty()) return true;
  }
  return false;
}

// A checkpoint that failed half way is useless, and may fill the disk.
void remove_half_written(const TrainingRun& run) {
  try {
    if (has_no_folder(run)) return;
    if (run.trains() && run.session.is_first()) remove_left_overs(run.options.run.output);
  } catch (const std::exception&) {  // there is a worse error already
  }
}

// The end of an error message: the checkpoint from which to go on.
std::string newest_named(const TrainingRun& run) {
  if (has_no_folder(run)) return "";
  const std::string newest = newest_checkpoint(run.options.run.output);
  return newest.empty() ? "" : printable(". The newest complete checkpoint is " + newest);
}

// To be called within a catch.
[[noreturn]] void end_job(TrainingRun& run) {
  const std::string who = "rank " + std::to_string(run.session.world().rank());
  try {
    throw;
  } catch (const PeerFailure& failure) {
    remove_half_written(run);
    std::fprintf(stderr, "train_gpt: %s: %s\n", who.c_str(), printable(failure.what()).c_str());
    log_failure(run, failure.what());
    std::fflush(stderr);
    // When a job is aborted the launcher drops output not yet passed on, such as the failed rank's message.
    std::this_thread::sleep_for(std::chrono::seconds(1));
  } catch (const NotFinite& failure) {  // of all ranks: the first says so and ends the job
    finish_saving(run);
    if (run.session.is_first()) {
      std::fprintf(stderr, "train_gpt: error: %s%s\n", printable(failure.what()).c_str(), newest_named(run).c_str());
      std::fflush(stderr);
      log_failure(run, failure.what());
    }
    // The launcher drops what it has not passed on when a job is aborted.
    std::this_thread::sleep_for(run.session.is_first() ? std::chrono::seconds(1) : std::chrono::seconds(20));
  } catch (const LauncherGone& failure) {  // and nothing serves MPI_Abort
    std::fprintf(stderr, "train_gpt: error: %s: %s\n", who.c_str(), printable(failure.what()).c_str());
    log_failure(run, failure.what());
    std::fflush(stderr);
    std::_Exit(1);
  } catch (const std::exception& error) {
    remove_half_written(run);
    run.state->fail(error.what());
    if (!lower_rank_says_why(run)) {
      std::fprintf(stderr, "train_gpt: error: %s: %s%s\n", who.c_str(), printable(error.what()).c_str(),
                   newest_named(run).c_str());
      std::fflush(stderr);
    }
    log_failure(run, error.what());
    run.watchdog->announce(error.what());
  }
  std::fflush(stderr);
  run.session.world().abort(1);
  std::abort();
}

// Notices, once, that the validation loss has risen three times in a row.
class RisingLoss {
 public:
  bool notices(double loss) {
    risen_ = loss > last_ ? risen_ + 1 : 0;
    last_ = loss;
    return risen_ == 3 && !std::exchange(told_, true);
  }

 private:
  double last_ = std::numeric_limits<double>::infinity();
  int risen_ = 0;
  bool told_ = false;
};

bool due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

}  // namespace

int train(TrainingRun& run) try {
  const RunOptions& wanted = run.options.run;
  const auto validates = [&](std::int64_t s) { return run.inputs.val_data && due(wanted.val_every, s); };
  const auto samples = [&](std::int64_t s) { return s > 0 && due(wanted.sample_every, s); };
  const auto answers = [&](std::int64_t s) { return !run.inputs.questions.empty() && due(wanted.eval_every, s); };
  StepMeter meter(run);
  SpikeDetector spikes;
  RisingLoss rising;
  Batch batch, next;
  double loss = 0;  // of the last step
  if (const FoundCheckpoint& resumed = run.inputs.resumed; !resumed.folder.empty()) {
    loss = resumed.manifest.loss.value_or(std::numeric_limits<double>::quiet_NaN());
  }
  Stopping::Verdict verdict;  // of the last step; a stop request stays
  std::int64_t redone_steps = 0;
  const auto take = [&](std::int64_t step, const StepResult& result) {
    StepReport report = meter.report(step, result);
    report.scores = spikes.add(result.loss, result.grad_norm);
    run.log->step(report);
    if (report.scores.spike && run.session.is_first()) keep_before_spike(wanted.output);
    loss = result.loss;
    run.stopping.step_took(result.ms / 1000);
    verdict = run.stopping.read(result.votes, verdict.stop);
    if (verdict.folder_is_lost) put_folder_back(run);
    redone_steps += result.redone ? 1 : 0;
    go_on_saving(run, result.votes);
  };
  run.log->begin_steps();
  for (std::int64_t step = run.inputs.resumed.manifest.step; step < wanted.steps; ++step) {
    run.state->set_step(step);
    if (validates(step) && rising.notices(validate_and_keep_best(run, step))) {
      run.log->text("note: validation loss has risen for 3 evaluations: overfitting");
    }
    if (answers(step)) answer(run, step);
    if (samples(step)) show_sample(run, step);
    const bool last = step + 1 == wanted.steps || !verdict.stop.empty();
    const bool saves = last || verdict.checkpoint || due(wanted.checkpoint_every, step + 1);
    // True if the next step follows immediately, so that an optimistic step may begin it, or the pipe stays full.
    const bool goes_ahead = (run.optimistic() || run.flushless()) && !last && !saves && !validates(step + 1) &&
                            !samples(step + 1) && !answers(step + 1);

    meter.align_clocks();
    meter.hand_on_records();
    run.state->set_stepping(true);
    read_batch(batch, run, step);
    if (goes_ahead) read_batch(next, run, step + 1);
    // Runs this rank's list, reduces the gradients, clips them, and updates the parameters.
    if (run.flushless()) {
      run.trainer->flow(step, batch, goes_ahead ? &next : nullptr, take);
    } else {
      take(step, run.trainer->step(step, batch, goes_ahead ? &next : nullptr));
    }
    run.state->set_stepping(false);
    // An optimistic step may have begun the next one, and a step that keeps the pipe full has: the next one is then the
    // last.
    const bool ends = last || (!verdict.stop.empty() && !goes_ahead);
    if (run.computes() && (saves || ends || (verdict.checkpoint && !goes_ahead))) {
      save_checkpoint(run, step + 1, loss, /*goes_on=*/!ends);
      verdict.checkpoint = false;
    }
    if (ends && step + 1 < wanted.steps) {
      end_early(run, meter, step + 1, verdict.stop);
      return verdict.folder_is_gone ? lost_folder(run) : kStopped;
    }
  }
  end(run, meter, loss, redone_steps);
  return 0;
} catch (...) {
  end_job(run);
}

int evaluate(TrainingRun& run) try {
  double loss = std::numeric_limits<double>::quiet_NaN();
  if (run.inputs.val_data) loss = validate(run, 0);
  if (!run.inputs.questions.empty()) run.log->answers(answer(run, 0));
  if (run.session.is_first()) remove_overwritten(run.options.run.output);
  run.log->end(run.trainer->parameter_hash(), loss, to_string(run.session.device().arithmetic()));
  run.state->finish();
  return 0;
} catch (...) {
  end_job(run);
}

}  // namespace train_gpt

#include "test/pipeline/train/training_runs.h"

#include <chrono>
#include <mutex>
#include <random>
#include <thread>

#include "kernels/injected_delays.h"
#include "kernels/local_communicator.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/flushless.h"
#include "pipeline/train/trainer.h"

namespace train_gpt::test {

std::int32_t token(std::int64_t vocab, std::int64_t step, std::int64_t row, std::int64_t position) {
  const std::int64_t mixed = (step * 1000003 + row * 7919 + position) * 2654435761;
  return static_cast<std::int32_t>((mixed >> 7) % vocab);
}

namespace {

void read_batch(Batch& batch, const Trainer& trainer, std::int64_t vocabulary, std::int64_t step) {
  // Captures of 16 bytes, which std::function holds without allocating.
  const auto reader = [step, vocab = static_cast<int>(vocabulary)](int shift) {
    return [step, vocab, shift](std::int32_t* out, std::int64_t row) {
      for (std::int64_t t = 0; t < kSeqLen; ++t) out[t] = token(vocab, step, row, t + shift);
    };
  };
  trainer.read_batch(batch, reader(0), reader(1));
}

std::string previous_file(const std::string& folder, int age) {
  return folder + "/previous" + (age > 1 ? std::to_string(age) : "") + ".bin";
}

}  // namespace

Outcome train_rank(Communicator& world, const Run& run, const Delays& delays, const AfterStep& after_step) {
  const auto device = run.make_device ? run.make_device() : make_cpu_device(run.threads);
  return train_rank(world, *device, run, delays, after_step);
}

Outcome train_rank(Communicator& world, Device& device, const Run& run, const Delays& delays,
                   const AfterStep& after_step) {
  const ModelConfig model{.layers = run.layers,
                          .heads = run.heads,
                          .hidden = run.hidden,
                          .vocab = run.vocab,
                          .max_seq_len = kSeqLen,
                          .tied = run.tied};
  PlanRequest request;
  request.model = model;
  request.batch = {.rows = run.rows,
                   .seq_len = kSeqLen,
                   .micro_batches = run.micro_batches,
                   .replicas = run.replicas,
                   .groups = run.groups};
  if (is_flushless(run.schedule)) {
    request.schedule = make_schedule(FlushlessRequest{.name = run.schedule,
                                                      .ranks = run.ranks,
                                                      .micro_batches = run.micro_batches,
                                                      .warmup_factor = run.warmup_factor,
                                                      .steps = kPlannedSteps});
  } else {
    request.schedule = make_schedule(
        {.name = run.schedule, .ranks = run.ranks, .micro_batches = run.micro_batches, .chunks = run.chunks});
  }
  if (run.groups == 0) request.batch.groups = run.replicas * request.directions();
  request.partition =
      run.partition.empty() ? uniform_partition(model, request.schedule.placement.depth()) : run.partition;
  request.head = run.head;
  request.recompute = run.recompute;
  request.optimizer = run.optimizer;
  request.caches = run.caches;
  request.spare_parameters = run.optimistic;
  request.zero = run.zero;
  request.gradient_buffers = stashes_weights(run.schedule) ? 1 : run.gradient_buffers;
  request.error_feedback = run.error_feedback;
  request.precision = device.precision();
  request.head_chunks = device.head_chunks();
  request.workspace_bytes = device.workspace_bytes(run.rows, kSeqLen, model.hidden, model.heads, model.padded_vocab());
  const Plan plan = make_plan(request);
  const OptimizerSettings optimizer{.learning_rate = {.shape = LearningRateShape::cosine,
                                                      .peak = run.peak_learning_rate,
                                                      .steps = run.steps,
                                                      .warmup_steps = 1},
                                    .adamw = {.weight_decay = 0.1F},
                                    .muon = {.weight_decay = 0.1F},
                                    .grad_clip = run.grad_clip};

  Groups groups = make_groups(world, make_layout(world.size(), run.replicas), plan);
  Trainer trainer(device, groups, plan, optimizer);
  if (run.resume_from.empty()) {
    trainer.initialise(7);
  } else {
    trainer.load(ModelFile(run.resume_from + "/model.bin"));
    trainer.load_moments(OptimizerFile(run.resume_from + "/optimizer.bin"));
    for (int age = 1; age <= trainer.older_versions(); ++age) {
      trainer.load_previous(ModelFile(previous_file(run.resume_from, age)), age);
    }
    if (request.error_feedback) trainer.load_update(ModelFile(run.resume_from + "/update.bin"));
  }
  trainer.open();
  auto random = std::mt19937_64(static_cast<std::uint64_t>(world.rank()) + 1);
  if (delays.action > 0) {
    trainer.executor().set_extra_work([&](std::size_t) {
      const double ms = std::uniform_real_distribution<>(0, delays.action)(random);
      std::this_thread::sleep_for(std::chrono::microseconds(static_cast<std::int64_t>(1000 * ms)));
    });
  }
  if (run.before_training) run.before_training(trainer);
  Outcome outcome;
  outcome.losses.reserve(static_cast<std::size_t>(run.steps));
  outcome.norms.reserve(static_cast<std::size_t>(run.steps));
  const std::int64_t end = run.stop_after < 0 ? run.steps : run.stop_after;
  Batch batch, next;
  for (std::int64_t step = run.first_step; step < end; ++step) {
    if (run.validate_every > 0 && step % run.validate_every == 0) {
      read_batch(batch, trainer, run.vocab, 1000);
      outcome.validation.push_back(trainer.validate(batch));
    }
    const bool validates_next = run.validate_every > 0 && (step + 1) % run.validate_every == 0;
    read_batch(batch, trainer, run.vocab, step);
    read_batch(next, trainer, run.vocab, step + 1);
    const auto take = [&](std::int64_t, const StepResult& result) {
      outcome.redone += result.redone ? 1 : 0;
      outcome.steady += result.steady ? 1 : 0;
      outcome.losses.push_back(result.loss);
      outcome.norms.push_back(result.grad_norm);
    };
    const bool drains = run.drain_every > 0 && (step + 1) % run.drain_every == 0;
    const Batch* const ahead = step + 1 < end && !validates_next && !drains ? &next : nullptr;
    if (request.flushless()) {
      trainer.flow(step, batch, ahead, take);
    } else {
      take(step, trainer.step(step, batch, ahead));
    }
    if (run.hash_every_step) outcome.hashes.push_back(trainer.parameter_hash());
    if (after_step) after_step(step);
  }
  outcome.hash = trainer.parameter_hash();
  if (run.after_training) run.after_training(trainer);
  if (!run.save_to.empty()) {
    trainer.save(run.save_to + "/model.bin", Precision::fp32);
    trainer.save_moments(run.save_to + "/optimizer.bin");
    for (int age = 1; age <= trainer.older_versions(); ++age) {
      trainer.save_previous(previous_file(run.save_to, age), age);
    }
    if (request.error_feedback) trainer.save_update(run.save_to + "/update.bin");
  }
  return outcome;
}

Outcome train(const Run& run, const Delays& delays, const AfterStep& after_step) {
  Outcome outcome;
  std::mutex mutex;
  run_local_ranks(run.ranks * run.replicas, [&](Communicator& world) {
    // The wrapper delays sends; the local communicator itself stays with the threads.
    const auto wrapped =
        inject_delays(world.split(0, world.rank()), {.message = delays.message, .receive = delays.receive});
    const Outcome mine = train_rank(*wrapped, run, delays, after_step);
    if (world.rank() != 0) return;
    const std::lock_guard lock(mutex);
    outcome = mine;
  });
  return outcome;
}

}  // namespace train_gpt::test

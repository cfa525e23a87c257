// What schedules that never flush are held against: train() of training_runs.h without pipeline, in a loop that keeps
// old parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/optimizer.h"
#include "test/model/plain_trainer.h"
#include "test/pipeline/train/training_runs.h"

namespace train_gpt::test {

inline MicroBatch micro_batch(std::int64_t vocab, std::int64_t step, std::int64_t row) {
  MicroBatch batch;
  for (std::int64_t t = 0; t < kSeqLen; ++t) {
    batch.tokens.push_back(token(vocab, step, row, t));
    batch.targets.push_back(token(vocab, step, row, t + 1));
  }
  return batch;
}

// The settings of train(), in a loop without pipeline whose stages take their gradients at old parameters.
inline std::unique_ptr<PlainTrainer> plain(Device& device, const Run& run, const std::vector<int>& cut,
                                           const std::vector<int>& delays) {
  const LearningRate rate{.peak = run.peak_learning_rate, .steps = run.steps, .warmup_steps = 1};
  const ChainShape shape{.model = {.layers = run.layers,
                                   .heads = run.heads,
                                   .hidden = run.hidden,
                                   .vocab = run.vocab,
                                   .max_seq_len = kSeqLen,
                                   .tied = run.tied},
                         .cut = cut,
                         .recompute = {},
                         .B = run.rows,
                         .T = kSeqLen};
  auto trainer = std::make_unique<PlainTrainer>(
      device, shape,
      TrainerOptions{.adamw = {.weight_decay = 0.1F},
                     .grad_clip = run.grad_clip,
                     .delays = delays,
                     .rate = [=, m = run.micro_batches, by_micro_batch = run.schedule == "pipedream"](
                                 std::int64_t step) { return learning_rate(rate, by_micro_batch ? step / m : step); }});
  for (StageChain::Rank& rank : trainer->chain().ranks()) {
    initialise_arena(device, rank.values.data(), shape.model, rank.layout, 7);
  }
  return trainer;
}

}  // namespace train_gpt::test

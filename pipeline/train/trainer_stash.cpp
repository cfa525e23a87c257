// Weight stashing (pipedream): each backward is followed by an update of what the rank has, by the gradients of one
// micro-batch. Nothing of it waits for another rank; what ranks tell each other after a step is for the log alone.
#include <algorithm>

#include "pipeline/train/trainer.h"

namespace train_gpt {

// Of the window that fills the pipe: what the forwards compute with that run ahead of `step`.
void Trainer::fill_stash(std::int64_t step) {
  stash_->count_from(step * plan_.request.batch.micro_batches);
  executor_.set_stash(*stash_);
}

// U(i), i the micro-batch counted from the first step: all backwards of a window are of its own step.
void Trainer::update_after(std::int64_t step, std::size_t action) {
  const Action& done = plan_.window.actions(groups_.rank())[action];
  if (done.op != Op::backward) return;
  flow_.updating.issued = flow_.updating.begin = device_.mark();
  const std::int64_t update = step * plan_.request.batch.micro_batches + done.micro_batch;
  const double rate = learning_rate(optimizer_.learning_rate, step);
  const AdamWScalars scalars = adamw_scalars(optimizer_.adamw, rate, update, /*clip=*/1.0F);
  device_.to_device(memory_.scalars(), &scalars, sizeof scalars);
  const WeightStash::Place next = stash_->place(stash_->newest() + 1);
  if (next.values != nullptr) {
    take_step(next.values, /*keep_moments=*/false);
    stash_->advance();
  } else {  // one master
    stash_->advance();
    take_step(memory_.parameters(), /*keep_moments=*/false);
  }
  flow_.updating.end = device_.mark();
  lowered_marks_[update_at_] = flow_.updating;
}

}  // namespace train_gpt

// The reductions that lower() adds to a rank's list: issued as soon as their gradients are complete, awaited before the
// norm.
#include "pipeline/train/trainer.h"

#include <stdexcept>
#include <utility>

namespace train_gpt {
namespace {

// From whom a reduction brings what.
const char* gradients_from(LoweredAction::Kind kind) {
  switch (kind) {
    case LoweredAction::Kind::reduce_copies:
      return "the gradients of the mirrored rank";
    case LoweredAction::Kind::reduce_replicas:
      return "the gradients of the other replicas";
    case LoweredAction::Kind::reduce_tied:
      return "the tied embedding's gradient of its other end";
    case LoweredAction::Kind::update:
      break;
  }
  throw std::logic_error("an update waits for nobody");
}

}  // namespace

// Issues the reductions that may start once `done` actions of the list are done.
void Trainer::issue_due(std::size_t done) {
  while (issued_ < lowered_.size() && lowered_[issued_].after <= done &&
         lowered_[issued_].kind != LoweredAction::Kind::update) {
    finish_reduction();  // each works on the result of the one before
    LoweredMarks& marks = lowered_marks_[issued_];
    marks.issued = marks.begin = device_.mark();
    issue(lowered_[issued_++]);
    marks.end = device_.mark();  // unless it goes on beside other actions
  }
}

void Trainer::issue(const LoweredAction& action) {
  const ArenaLayout& layout = memory_.plan().layout;
  float* gradients = memory_.gradients();
  switch (action.kind) {
    case LoweredAction::Kind::reduce_copies:
      reducing_ = groups_.copies.get();
      reduction_ = reducing_->all_reduce(gradients, layout.gradient_elements);
      break;
    case LoweredAction::Kind::reduce_replicas:
      reducing_ = groups_.replicas.get();
      reduction_ = reducing_->all_reduce(gradients, layout.gradient_elements);
      break;
    case LoweredAction::Kind::reduce_tied:
      if (action.tied_sum < 0) {
        sum_tied_gradients(device_, layout, gradients);
      } else {
        const TiedSum& sum = plan_.tied_sums[static_cast<std::size_t>(action.tied_sum)];
        reducing_ = groups_.tied_to(groups_.rank() == sum.embedding ? sum.head : sum.embedding);
        const ElementRange range = wte_range(plan_.request.model, layout, sum.first_shard, sum.last_shard);
        reduction_ = reducing_->all_reduce(gradients + range.offset, range.elements);
      }
      break;
    case LoweredAction::Kind::update:
      break;
  }
}

// Each as it will run: NCCL connects the ranks of a communicator by the size of what it sums.
void Trainer::rehearse_reductions() {
  if (!plan_.request.training) return;
  for (const LoweredAction& action : lowered_) {
    issue(action);
    await_reduction();
    device_.synchronize();  // the next may connect only when nothing is on its way
  }
}

void Trainer::await_reduction() {
  if (reducing_ == nullptr) return;
  reducing_->await(reduction_);
  reducing_ = nullptr;
}

void Trainer::finish_reduction() {
  if (reducing_ == nullptr) return;
  LoweredMarks& marks = lowered_marks_[issued_ - 1];
  marks.begin = device_.mark();
  waits_for_ = gradients_from(lowered_[issued_ - 1].kind);
  await_reduction();
  waits_for_ = nullptr;
  marks.end = device_.mark();
}

// From here on the host reads what the device computed, and waits for it by the device's means, which cannot tell a
// peer that is lost from work that takes long. So the sums must be here.
void Trainer::finish_reductions() {
  finish_reduction();
  for (Communicator* group : groups_.summing) {
    waits_for_ = gradients_from(group == groups_.copies.get()     ? LoweredAction::Kind::reduce_copies
                                : group == groups_.replicas.get() ? LoweredAction::Kind::reduce_replicas
                                                                  : LoweredAction::Kind::reduce_tied);
    group->catch_up();
  }
  waits_for_ = nullptr;
}

}  // namespace train_gpt

// Steps of a schedule that never flushes (docs/flushless.md). Window t of a rank ends with its last backward of step t;
// then the gradients of step t are reduced and its norm brought together beside the actions of window t+1, and the
// update is made where those begin that need it: the first forward of step t+2. It writes version t+1 of the parameters
// where version t-1 was.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "pipeline/schedule/flushless.h"
#include "pipeline/train/state_file.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

void Trainer::flow(std::int64_t step, const Batch& batch, const Batch* next, const TakeResult& take) {
  const bool was_full = flow_.open;
  if (!was_full) fill(step, batch);
  if (plan_.request.computes) {
    // Ranks that run no forward ahead have room for one batch.
    if (memory_.plan().batches == 1) load_tokens(batch, step);
    if (memory_.plan().batches == 2 && next != nullptr) load_tokens(*next, step + 1);
  }
  executor_.train_window(dloss(), {.step = step, .own = true, .next = next != nullptr},
                         [this, step](std::size_t action) {
                           settle_window(/*must=*/false);
                           if (stash_) update_after(step, action);
                         });
  settle_window(/*must=*/true);
  hand_out(take);
  close_window(step, was_full && next != nullptr);
  if (next != nullptr) return;
  settle_window(/*must=*/true);
  executor_.end_flow();
  device_.synchronize();
  flow_.open = false;
  hand_out(take);
}

// The forwards that run ahead of a step, as the window before it would have run them.
void Trainer::fill(std::int64_t step, const Batch& batch) {
  flow_.open = true;
  flow_.window_begin_s = monotonic_seconds();
  executor_.begin_flow();
  if (stash_) {
    fill_stash(step);
  } else {
    const WeightStash::Place older = previous(1);
    executor_.set_version(step, older.values, older.low);
    executor_.set_version(step + 1, memory_.parameters(), memory_.working_parameters());
  }
  if (plan_.request.computes) load_tokens(batch, step);
  executor_.train_window(dloss(), {.step = step - 1, .own = false, .next = true}, {});
}

// This rank has all its gradients of the step.
void Trainer::close_window(std::int64_t step, bool steady) {
  last_marks_ = executor_.marks();
  RankTimes times = rank_times(device_, last_marks_, clock_ahead_ms_);
  if (steady) times.first_start = flow_.last_end_ms;
  flow_.last_end_ms = times.last_end;
  begin_report(times);
  device_.synchronize();  // marks count from here
  flow_.waiting = gradients_of_ = step;
  flow_.merging = flow_.is_taken = false;
  flow_.result = StepResult{};
  flow_.result.learning_rate = learning_rate(optimizer_.learning_rate, step);
  flow_.result.steady = steady;
  const double now = monotonic_seconds();
  flow_.result.ms = 1000 * (now - std::exchange(flow_.window_begin_s, now));
  issued_ = 0;
  settle_window(/*must=*/false);
}

// Takes the step that waits as far as it gets without waiting, or (must) to its end.
void Trainer::settle_window(bool must) {
  if (flow_.waiting < 0) return;
  const std::int64_t step = flow_.waiting;
  if (!flow_.merging) {
    if (!gradients_are_reduced(must)) return;
    flow_.updating.issued = device_.mark();
    complete_report();
    flow_.merged = groups_.world->start_one_hot_sum(report_);
    flow_.merging = true;
    flow_.is_taken = stash_ || plan_.request.gradient_buffers == 1;
    if (flow_.is_taken && !stash_) take_window_step(step, 0);
  }
  // Where parameters are gathered after it, the update is made as soon as it can be.
  if (!must && (!shards() || !groups_.world->done(flow_.merged))) return;
  waits_for_ = "the losses and norms of all ranks";
  const double begin = monotonic_seconds();
  groups_.world->await(flow_.merged);
  const double waited = monotonic_seconds() - begin;
  waits_for_ = nullptr;
  StepResult result = read_report(step);
  result.norm_wait_ms = 1000 * waited;
  result.learning_rate = flow_.result.learning_rate;
  result.ms = flow_.result.ms;
  result.steady = flow_.result.steady;
  flow_.waiting = -1;
  if (result.skipped) {
    keep_version(step);
  } else if (!flow_.is_taken) {
    take_window_step(step, result.grad_norm);
  }
  flow_.result = result;
  flow_.result_of = step;
}

// Goes on with the reductions that lower() names; true if all are complete.
bool Trainer::gradients_are_reduced(bool must) {
  note_complete();
  for (; issued_ < std::min(update_at_, lowered_.size()); ++issued_) {
    for (const std::size_t needed : lowered_[issued_].needs) {
      if (running_[needed].group != nullptr && !must) return false;
      finish_reduction(needed);
    }
    LoweredMarks& marks = lowered_marks_[issued_];
    marks.issued = marks.begin = device_.mark();
    issue(issued_);
    marks.end = device_.mark();
  }
  const auto runs = [](const Running& one) { return one.group != nullptr; };
  if (!must && std::ranges::any_of(running_, runs)) return false;
  finish_reductions();
  return true;
}

// U(step): version step + 1.
void Trainer::take_window_step(std::int64_t step, double norm) {
  flow_.updating.begin = device_.mark();
  if (plan_.request.computes) {
    load_scalars(step, clip_factor(norm, optimizer_.grad_clip));
    if (plan_.request.error_feedback) {
      correct_window_step(step);
      memory_.swap_parameters();
    } else if (plan_.request.precision == Precision::fp32) {
      take_step(memory_.spare_parameters(), /*keep_moments=*/false);
      memory_.swap_parameters();
    } else {  // one master: its older rounded copies are what is computed with
      memory_.swap_working_parameters();
      take_step(memory_.parameters(), /*keep_moments=*/false);
    }
    issue_gathers();
    executor_.set_version(step + 2, memory_.parameters(), memory_.working_parameters());
  }
  flow_.updating.end = device_.mark();
  if (plan_.request.computes) lowered_marks_[update_at_] = flow_.updating;
}

// --delay-correction error-feedback: what the delayed gradient says now and did not say a step ago is added once more.
// With u(t) the optimizer's update by G(t), without weight decay,
//
//   W(t+1) = (1 - lr weight_decay) W(t) - (2 u(t) - u(t-1)),   u(-1) = u(0)
//
// where W(t) may not be touched: step t+1 still computes with it. -u(t) takes the place of version t-1, W(t+1) that of
// -u(t-1).
void Trainer::correct_window_step(std::int64_t step) {
  const ArenaLayout& layout = memory_.plan().layout;
  float* const update = memory_.spare_parameters();
  device_.zero(update, memory_.plan().bytes_of(MemoryUse::spare_parameters));
  OptimizerArenas from_zero = arenas(update);
  from_zero.values = update;
  adamw_step(device_, from_zero, layout, memory_.scalars(), optimizer_.adamw, /*keep_moments=*/false);
  muon_step(device_, from_zero, layout, memory_.scalars(), optimizer_.muon, /*keep_averages=*/false, memory_.scratch());
  float* const result = memory_.last_update();
  const auto rate = static_cast<float>(learning_rate(optimizer_.learning_rate, step));
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const float shrink = entry.info.decays ? 1.0F - rate * optimizer_.adamw.weight_decay : 1.0F;
    float* const out = result + entry.offset;
    const float* const values = memory_.parameters() + entry.offset;
    const float* const now = update + entry.offset;
    if (flow_.has_update) {
      device_.weighted_sum(out, shrink, values, -1.0F, out, entry.info.elements);
      device_.weighted_sum(out, 1.0F, out, 2.0F, now, entry.info.elements);
    } else {
      device_.weighted_sum(out, shrink, values, 1.0F, now, entry.info.elements);
    }
  }
  memory_.swap_update();
  flow_.has_update = true;
}

// A step that updates nothing: version step + 1 is version step.
void Trainer::keep_version(std::int64_t step) {
  copy_to_previous();  // also where the pipe is filled again
  executor_.set_version(step + 2, memory_.parameters(), memory_.working_parameters());
}

void Trainer::copy_to_previous() {
  if (!plan_.request.flushless() || !plan_.request.training) return;
  const std::int64_t elements = memory_.plan().layout.elements;
  const int older = train_gpt::older_versions(plan_.request.schedule, groups_.rank());
  for (int age = 1; age <= older; ++age) {
    const WeightStash::Place place = previous(age);
    if (place.values != nullptr) {
      device_.copy(place.values, memory_.parameters(), elements * static_cast<std::int64_t>(sizeof(float)));
    } else {
      device_.copy(place.low, memory_.working_parameters(), elements * element_size(plan_.request.precision));
    }
  }
}

void Trainer::hand_out(const TakeResult& take) {
  if (flow_.result_of < 0) return;
  finish_gathers();
  take(std::exchange(flow_.result_of, -1), flow_.result);
}

// ---- the versions before the newest, in files ----------------------------------------------------------------------

int Trainer::older_versions() const { return train_gpt::older_versions(plan_.request.schedule, 0); }

WeightStash::Place Trainer::previous(int age) const {
  if (stash_) return stash_->place(stash_->newest() - age);
  const bool low = plan_.request.precision != Precision::fp32;
  return {low ? nullptr : memory_.spare_parameters(), memory_.spare_working_parameters()};
}

// In bf16 there are rounded numbers alone, which the gradients' arena holds as floats on their way: the pipe is empty.
void Trainer::load_previous(const ModelFile& file, int age) {
  const RankPlan& rank = memory_.plan();
  if (age > train_gpt::older_versions(plan_.request.schedule, groups_.rank())) return;
  const WeightStash::Place place = previous(age);
  if (place.values != nullptr) {
    file.read_arena(device_, place.values, rank.layout);
    return;
  }
  file.read_arena(device_, memory_.gradients(), rank.layout);
  for (const ArenaLayout::Entry& entry : rank.layout.entries) {
    char* low = static_cast<char*>(place.low);
    device_.from_float(low + entry.offset * element_size(plan_.request.precision), memory_.gradients() + entry.offset,
                       entry.info.elements);
  }
  device_.synchronize();
  memory_.zero_gradients();
}

void Trainer::load_update(const ModelFile& file) {
  file.read_arena(device_, memory_.last_update(), memory_.plan().layout);
  flow_.has_update = true;
}

void Trainer::save_update(const std::string& path) { save_arena(path, memory_.last_update()); }

// A rank that has none so old writes its oldest.
void Trainer::save_previous(const std::string& path, int age) {
  const RankPlan& rank = memory_.plan();
  const int older = std::min(age, train_gpt::older_versions(plan_.request.schedule, groups_.rank()));
  const WeightStash::Place place =
      older > 0 ? previous(older)
                : WeightStash::Place{plan_.request.precision == Precision::fp32 ? memory_.parameters() : nullptr,
                                     memory_.working_parameters()};
  const float* values = place.values;
  if (values == nullptr) {
    for (const ArenaLayout::Entry& entry : rank.layout.entries) {
      const char* low = static_cast<const char*>(place.low);
      device_.to_float(memory_.gradients() + entry.offset, low + entry.offset * element_size(plan_.request.precision),
                       entry.info.elements);
    }
    values = memory_.gradients();
  }
  save_arena(path, values);
}

void Trainer::save_arena(const std::string& path, const float* values) {
  if (flow_.open) throw std::logic_error("the pipe is full: nothing can be saved");
  const ModelConfig& model = plan_.request.model;
  write_together(
      path, [&] { create_model_file(path, model, Precision::fp32); },
      [&] {
        if (written_parameters() == nullptr) return;
        write_model_tensors(device_, path, model, Precision::fp32, memory_.plan().layout, values);
      });
}

}  // namespace train_gpt

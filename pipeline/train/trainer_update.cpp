// The optimizer step of a rank: of all its tensors, or of the pieces that are its own under --zero.
#include "pipeline/train/trainer.h"

namespace train_gpt {

void Trainer::load_scalars(std::int64_t step, float clip) {
  const AdamWScalars scalars =
      adamw_scalars(optimizer_.adamw, learning_rate(optimizer_.learning_rate, step), step, clip);
  device_.to_device(memory_.scalars(), &scalars, sizeof scalars);
}

OptimizerArenas Trainer::arenas(float* new_values) const {
  const bool low = plan_.request.precision != Precision::fp32;
  return {
      .new_values = new_values,
      .low = low && !has_parts() ? memory_.working_parameters() : nullptr,
      .m = memory_.first_moment(),
      .v = memory_.second_moment(),
      .values = memory_.parameters(),
      .gradients = memory_.plan().gradient_windows ? memory_.gradient_shards() : memory_.step_gradients(gradients_of_)};
}

// step(arenas, layout) for what this rank updates: all of its tensors, or a section's piece after the other, of which
// moments, and what else only this replica has, lie elsewhere.
template <class Step>
void Trainer::for_each_piece(float* new_values, const Step& step) {
  const OptimizerArenas all = arenas(new_values);
  if (!shards()) return step(all, memory_.plan().layout);
  for (const Shard::Piece& piece : shard_.pieces) {
    OptimizerArenas of_piece = all;
    of_piece.m -= piece.ahead;
    of_piece.v -= piece.ahead;
    if (memory_.plan().gradient_windows) of_piece.gradients -= piece.ahead;
    if (has_parts()) {
      of_piece.values -= piece.ahead;
      of_piece.new_values -= piece.ahead;
    }
    step(of_piece, piece.in_arena);
  }
}

void Trainer::take_step(float* new_values, bool keep_moments) {
  for_each_piece(new_values, [&](const OptimizerArenas& of_piece, const ArenaLayout& layout) {
    adamw_step(device_, of_piece, layout, memory_.scalars(), optimizer_.adamw, keep_moments);
    muon_step(device_, of_piece, layout, memory_.scalars(), optimizer_.muon, keep_moments, memory_.scratch());
  });
}

void Trainer::update(std::int64_t step, double norm) {
  load_scalars(step, clip_factor(norm, optimizer_.grad_clip));
  take_step(memory_.parameters(), /*keep_moments=*/false);
  issue_gathers();
}

// Writes the new parameters beside the old ones and makes them the parameters; the moments stay.
void Trainer::update_ahead(std::int64_t step) {
  load_scalars(step, 1.0F);
  take_step(memory_.spare_parameters(), /*keep_moments=*/true);
  memory_.swap_parameters();
  issue_gathers();
}

// The scalars are still those of update_ahead.
void Trainer::commit_moments() {
  for_each_piece(memory_.parameters(), [this](const OptimizerArenas& of_piece, const ArenaLayout& layout) {
    adamw_moments_step(device_, of_piece, layout, memory_.scalars(), optimizer_.adamw);
    muon_averages_step(device_, of_piece, layout, memory_.scalars(), optimizer_.muon);
  });
}

}  // namespace train_gpt

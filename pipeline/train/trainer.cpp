#include "pipeline/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "pipeline/schedule/flushless.h"
#include "pipeline/simulate/versions.h"
#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

// The name of what the end of a step waits for.
constexpr const char* kOfAllRanks = "the losses and norms of all ranks";

}  // namespace

Trainer::Trainer(Device& device, Groups& groups, const Plan& plan, const OptimizerSettings& optimizer)
    : device_(device),
      groups_(groups),
      plan_(plan),
      optimizer_(optimizer),
      memory_(device, plan, groups.rank()),
      executor_(device, *groups.pipeline, plan, memory_),
      lowered_(lower(plan, groups.rank())),
      lowered_marks_(lowered_.size()),
      running_(lowered_.size()),
      met_(plan.request.computes ? 0 : lowered_.size()) {
  const BatchShape& batch = plan_.request.batch;
  host_tokens_.resize(static_cast<std::size_t>(batch.micro_batch_tokens()));
  const RankMemory::Losses losses = memory_.all_losses();
  host_losses_.resize(static_cast<std::size_t>(losses.count * losses.stride));
  host_sums_.resize(static_cast<std::size_t>(owned_atoms(memory_.plan().layout)));
  atoms_ = plan_.request.computes ? atom_count(plan_.request.model) : 0;
  const auto update = std::ranges::find(lowered_, LoweredAction::Kind::update, &LoweredAction::kind);
  update_at_ = static_cast<std::size_t>(update - lowered_.begin());
  if (shards()) {
    shard_ = shard_of(memory_.plan(), groups_.replica());
    executor_.set_before_action([this](ForwardUse use, std::size_t action) { before_action(use, action); });
  }
  prepare_windows();
  time_lowered();
  const bool stashes = stashes_weights(plan_.request.schedule.name);
  if (stashes && plan_.request.training && plan_.request.computes) {
    stash_.emplace(memory_, plan_.request.precision, train_gpt::older_versions(plan_.request.schedule, groups_.rank()));
  }
  if (plan_.request.flushless() && plan_.request.training && !stashes) {
    flow_.update_at = update_position(plan_.window, groups_.rank());
    executor_.set_before_action([this](ForwardUse use, std::size_t action) {
      if (use != ForwardUse::training || action != flow_.update_at) return;
      settle_window(/*must=*/true);
      finish_gathers();
    });
  }
  set_hooks({}, {});
}

void Trainer::set_hooks(const std::function<void()>& while_computing, const std::function<void()>& while_waiting) {
  device_.set_progress_hook([this, while_computing] {
    groups_.progress();
    if (while_computing) while_computing();
  });
  groups_.for_each([this, &while_waiting](Communicator& group) {
    group.set_idle_hook([this, while_waiting] {
      groups_.progress();
      if (while_waiting) while_waiting();
    });
  });
}

Trainer::~Trainer() {
  device_.set_progress_hook({});
  groups_.for_each([](Communicator& group) { group.set_idle_hook({}); });
}

void Trainer::open() {
  executor_.open();
  for (Communicator* group : groups_.summing) group->open_collectives(memory_.plan().layout.gradient_elements);
  if (plan_.request.computes && device_.sets_up_on_first_use()) dry_run();
}

// Input for actions that run alone: token 0 everywhere.
void Trainer::load_zeros() {
  const auto zeros = [this](std::int32_t* out, std::int64_t) { std::fill_n(out, plan_.request.batch.seq_len, 0); };
  Batch batch;
  read_batch(batch, zeros, zeros);
  load_tokens(batch);
  memory_.zero_messages();
}

void Trainer::dry_run() {
  load_zeros();
  executor_.dry_run();
  dry_run_reductions();
  memory_.zero_gradients();
  device_.synchronize();
}

// ---- one step -------------------------------------------------------------------------------------------------------

namespace {

// The micro-batches of one step; without a flush there may be room for two.
MicroBatches of_step(MicroBatches all, const BatchShape& shape) {
  all.end = std::min(all.end, shape.micro_batches);
  return all;
}

}  // namespace

void Trainer::read_batch(Batch& batch, const ReadRow& inputs, const ReadRow& targets) const {
  const BatchShape& shape = plan_.request.batch;
  const auto read = [&](std::vector<std::int32_t>& ids, const ReadRow& read_row, MicroBatches wanted) {
    wanted = of_step(wanted, shape);
    ids.resize(static_cast<std::size_t>(wanted.count() * shape.micro_batch_tokens()));
    const std::int64_t first_row = (std::int64_t{groups_.replica()} * shape.micro_batches + wanted.first) * shape.rows;
    for (std::int64_t r = 0; r < wanted.count() * shape.rows; ++r) {
      read_row(ids.data() + r * shape.seq_len, first_row + r);
    }
  };
  read(batch.inputs, inputs, memory_.plan().tokens);
  read(batch.targets, targets, memory_.plan().targets);
}

void Trainer::load_tokens(const Batch& batch, std::int64_t step) {
  const BatchShape& shape = plan_.request.batch;
  const std::int64_t tokens = shape.micro_batch_tokens();
  constexpr std::int64_t kId = sizeof(std::int32_t);
  const RankPlan& rank = memory_.plan();
  const int place = static_cast<int>(step % rank.batches) * shape.micro_batches;
  const MicroBatches inputs = of_step(rank.tokens, shape), targets = of_step(rank.targets, shape);
  const std::int32_t* ids = batch.inputs.data();
  for (int mb = inputs.first; mb < inputs.end; ++mb, ids += tokens) {
    device_.to_device(memory_.tokens(place + mb), ids, tokens * kId);
  }
  ids = batch.targets.data();
  for (int mb = targets.first; mb < targets.end; ++mb, ids += tokens) {
    device_.to_device(memory_.targets(place + mb), ids, tokens * kId);
  }
}

// losses[replica * m + micro-batch] = sum over the micro-batch's tokens, for the micro-batches whose last shard ran
// here.
void Trainer::micro_batch_losses(std::span<double> losses, const std::vector<Action>& list) {
  const BatchShape& shape = plan_.request.batch;
  const RankMemory::Losses all = memory_.all_losses();
  if (all.count == 0) return;
  device_.to_host(host_losses_.data(), all.first, all.count * all.stride * static_cast<std::int64_t>(sizeof(float)));
  for (const Action& action : list) {
    if (action.op != Op::forward || !memory_.plan().stage_plan(action.stage).shape.has_losses()) continue;
    const float* mine = host_losses_.data() + (action.micro_batch - memory_.plan().losses.first) * all.stride;
    double sum = 0;
    for (std::int64_t i = 0; i < shape.micro_batch_tokens(); ++i) sum += static_cast<double>(mine[i]);
    const std::int64_t of_replica = std::int64_t{groups_.replica()} * shape.micro_batches;
    losses[static_cast<std::size_t>(of_replica + action.micro_batch)] = sum;
  }
}

double Trainer::mean_loss(std::span<const double> losses) const {
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum / static_cast<double>(plan_.request.batch.step_tokens());
}

StepResult Trainer::step(std::int64_t step, const Batch& batch, const Batch* next) {
  if (plan_.request.flushless()) throw std::logic_error("a schedule without a flush has no steps of their own");
  const double begin = monotonic_seconds();
  begin_gathers();
  if (plan_.request.computes && !is_ahead_) load_tokens(batch);
  is_ahead_ = false;
  issued_ = 0;
  executor_.train_step(dloss(), [this](std::size_t done) { issue_due(done + 1); });
  finish_reductions();
  const bool ahead = next != nullptr && plan_.request.spare_parameters;
  StepResult result = ahead ? norm_beside_update(step, *next) : norm_then_update(step);
  result.learning_rate = learning_rate(optimizer_.learning_rate, step);
  device_.synchronize();
  result.ms = 1000 * (monotonic_seconds() - begin);
  return result;
}

StepResult Trainer::norm_then_update(std::int64_t step) {
  LoweredMarks updating{.issued = device_.mark()};
  last_marks_ = executor_.marks();
  begin_report(rank_times(device_, last_marks_, clock_ahead_ms_));
  complete_report();
  waits_for_ = kOfAllRanks;
  groups_.world->one_hot_sum(report_);
  waits_for_ = nullptr;
  const StepResult result = read_report(step);
  updating.begin = device_.mark();
  if (plan_.request.computes && !result.skipped) update(step, result.grad_norm);  // clips
  updating.end = device_.mark();
  if (update_at_ < lowered_.size()) lowered_marks_[update_at_] = updating;
  return result;
}

// Optimistic: while the norm is on its way the update is made, as if nothing had to be clipped, and the next step
// begun.
StepResult Trainer::norm_beside_update(std::int64_t step, const Batch& next) {
  LoweredMarks updating{.issued = device_.mark()};
  last_marks_ = executor_.marks();
  begin_report(rank_times(device_, last_marks_, clock_ahead_ms_));
  complete_report();
  const Ticket merged = groups_.world->start_one_hot_sum(report_);
  updating.begin = device_.mark();
  if (plan_.request.computes) update_ahead(step);
  updating.end = device_.mark();
  if (plan_.request.computes) load_tokens(next);
  executor_.train_ahead(dloss());
  waits_for_ = kOfAllRanks;
  groups_.world->await(merged);
  waits_for_ = nullptr;
  StepResult result = read_report(step);
  if (result.skipped) {
    is_ahead_ = false;
    executor_.roll_back();
    finish_gathers();
    memory_.swap_parameters();
    refresh_working_parameters();  // the update had written them, too
  } else {
    result.redone = !settle(step, result.grad_norm);
  }
  if (plan_.request.computes) lowered_marks_[update_at_] = updating;
  return result;
}

// pipedream: each micro-batch is a step of the optimizer.
float Trainer::dloss() const {
  const BatchShape& batch = plan_.request.batch;
  const bool alone = stashes_weights(plan_.request.schedule.name);
  return static_cast<float>(1.0 / static_cast<double>(alone ? batch.micro_batch_tokens() : batch.step_tokens()));
}

// Now that the norm is known: completes the update that went ahead, or takes it back and does it again. True if it
// stood.
bool Trainer::settle(std::int64_t step, double norm) {
  is_ahead_ = clip_factor(norm, optimizer_.grad_clip) == 1.0F;
  if (!is_ahead_) {
    executor_.roll_back();
    finish_gathers();
    memory_.swap_parameters();
    update(step, norm);
  } else if (plan_.request.computes) {
    commit_moments();
  }
  return is_ahead_;
}

// One message says everything: losses of all micro-batches, times of all ranks, squared sums of all atoms, and the
// votes.
struct Trainer::ReportParts {
  std::span<double> losses;
  std::span<double> times;
  std::span<double> squared_sums;
  std::span<double> votes;
};

Trainer::ReportParts Trainer::report_parts() {
  const BatchShape& shape = plan_.request.batch;
  const auto losses = static_cast<std::size_t>(shape.replicas) * static_cast<std::size_t>(shape.micro_batches);
  const std::size_t times = static_cast<std::size_t>(groups_.world->size()) * RankTimes::kNumbers;
  const auto atoms = static_cast<std::size_t>(atoms_);
  report_.resize(losses + times + atoms + kVotes);
  const std::span<double> all(report_);
  return {all.first(losses), all.subspan(losses, times), all.subspan(losses + times, atoms), all.last(kVotes)};
}

// The numbers that this rank knows when its list is done; zeros elsewhere.
void Trainer::begin_report(const RankTimes& times) {
  const ReportParts parts = report_parts();
  std::fill(report_.begin(), report_.end(), 0.0);
  times.write(parts.times.subspan(static_cast<std::size_t>(groups_.world->rank()) * RankTimes::kNumbers));
  if (plan_.request.computes) micro_batch_losses(parts.losses, plan_.step_schedule().actions(groups_.rank()));
}

// And when its gradients are sums over all ranks that add to them.
void Trainer::complete_report() {
  const ReportParts parts = report_parts();
  std::ranges::copy(votes_(), parts.votes.begin());
  if (!plan_.request.computes) return;
  if (shards() ? groups_.is_first_of_mirrored() : groups_.owns_parameters()) {
    const bool own = memory_.plan().gradient_windows.has_value();
    const ArenaLayout& layout = own ? shard_.in_shard : shards() ? shard_.in_arena : memory_.plan().layout;
    gradient_squared_sums(device_, parts.squared_sums, memory_.atom_sums(), host_sums_.data(), layout,
                          own ? memory_.gradient_shards() : memory_.step_gradients(gradients_of_));
  }
}

// The sums over all ranks.
StepResult Trainer::read_report(std::int64_t step) {
  const ReportParts parts = report_parts();
  const bool computes = plan_.request.computes;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  StepResult result;
  result.loss = computes ? mean_loss(parts.losses) : kNone;
  result.grad_norm = computes ? gradient_norm(parts.squared_sums) : kNone;
  std::ranges::copy(parts.votes, result.votes.begin());
  times_.clear();
  for (std::size_t at = 0; at < parts.times.size(); at += RankTimes::kNumbers) {
    times_.push_back(RankTimes::read(parts.times.subspan(at, RankTimes::kNumbers)));
  }
  result.times = times_;
  if (computes && (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm))) {
    result.skipped = skips_left_-- > 0;
    if (result.skipped) return result;
    throw NotFinite("step " + std::to_string(step) + ": " + non_finite_number(parts.losses, parts.squared_sums) +
                    " is not finite. Lower --learning-rate, start from an earlier checkpoint, or let --max-skipped N "
                    "steps pass");
  }
  return result;
}

// ---- costs ----------------------------------------------------------------------------------------------------------

StageCosts Trainer::measure_stages() {
  constexpr int kRuns = 3;
  constexpr double kLongRun = 300;  // ms: the first run has to do
  const std::size_t stages = plan_.request.schedule.placement.stages.size();
  std::vector<double> costs(3 * stages, 0.0);
  const auto dloss = static_cast<float>(1.0 / static_cast<double>(plan_.request.batch.step_tokens()));
  load_zeros();
  groups_.world->barrier();
  for (const StagePlan& stage : memory_.plan().stages) {
    gather_stage(stage.stage);
    const int mb = plan_.request.schedule.placement.stages[static_cast<std::size_t>(stage.stage)].first_micro_batch;
    std::vector<double> samples[3];
    for (int run = 0; run < kRuns; ++run) {
      for (const Op op : {Op::forward, Op::backward_input, Op::backward_weight}) {
        const Device::Mark begin = device_.mark();
        executor_.run_alone({.op = op, .stage = stage.stage, .micro_batch = mb}, dloss);
        const Device::Mark end = device_.mark();
        const std::size_t kind = op == Op::forward ? 0 : op == Op::backward_input ? 1 : 2;
        samples[kind].push_back(device_.time_ms(end) - device_.time_ms(begin));
      }
      if (samples[0].back() + samples[1].back() + samples[2].back() > kLongRun) break;
    }
    for (std::size_t kind = 0; kind < 3; ++kind) {
      const auto middle = samples[kind].begin() + static_cast<std::ptrdiff_t>(samples[kind].size() / 2);
      std::nth_element(samples[kind].begin(), middle, samples[kind].end());
      if (groups_.replica() == 0) costs[3 * static_cast<std::size_t>(stage.stage) + kind] = *middle;
    }
  }
  memory_.zero_gradients();
  groups_.world->one_hot_sum(costs);
  StageCosts result;
  for (std::size_t s = 0; s < stages; ++s) {
    result.forward.push_back(costs[3 * s]);
    result.input.push_back(costs[3 * s + 1]);
    result.weight.push_back(costs[3 * s + 2]);
  }
  return result;
}

}  // namespace train_gpt

// The reductions that lower() adds to a rank's list: issued as soon as their gradients are complete, awaited before the
// norm.
#include "pipeline/train/trainer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "pipeline/plan/replica_collectives.h"
#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

// From whom a reduction brings what.
const char* gradients_from(LoweredAction::Kind kind) {
  switch (kind) {
    case LoweredAction::Kind::reduce_mirrors:
      return "the gradients of the mirrored rank";
    case LoweredAction::Kind::reduce_replicas:
      return "the gradients of the other replicas";
    case LoweredAction::Kind::reduce_tied:
      return "the tied embedding's gradient of its other end";
    case LoweredAction::Kind::gather:
      return "the parameters that the other replicas updated";
    case LoweredAction::Kind::let_go:
    case LoweredAction::Kind::update:
      break;
  }
  throw std::logic_error("an update waits for nobody");
}

// The end of a tied sum that is on this rank.
int tied_section(const RankPlan& rank, const TiedSum& sum) {
  const auto found = std::ranges::find_if(rank.sections, [&](const Section& section) {
    return section.is_of_tied_wte() && section.has_parameters && section.first_shard == sum.first_shard;
  });
  if (found == rank.sections.end()) throw std::logic_error("a tied sum without its shards");
  return static_cast<int>(found - rank.sections.begin());
}

}  // namespace

// Issues the reductions that may start once `done` actions of the list are done. Those before them go on meanwhile.
void Trainer::issue_due(std::size_t done) {
  note_complete();
  while (issued_ < lowered_.size() && lowered_[issued_].after <= done &&
         lowered_[issued_].kind != LoweredAction::Kind::update) {
    for (const std::size_t needed : lowered_[issued_].needs) finish_reduction(needed);
    LoweredMarks& marks = lowered_marks_[issued_];
    marks.issued = marks.begin = device_.mark();
    issue(issued_++);
    marks.end = device_.mark();  // unless it goes on beside other actions
  }
}

// Reductions that were complete before anybody waited for them have taken no time of this rank.
void Trainer::note_complete() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const Running& one = running_[i];
    if (one.group != nullptr && one.group->done(one.ticket) && is_over(i)) finish_reduction(i);
  }
}

// Timed device: the time of each is given, or follows from its bytes.
void Trainer::time_lowered() {
  if (plan_.request.computes) return;
  const int rank = groups_.rank();
  const std::vector<LinkCost>& links = plan_.request.replica_links;
  for (const LoweredAction& action : lowered_) {
    if (links.empty()) {
      timed_ms_.push_back(plan_.request.reduction_ms / static_cast<double>(lowered_.size()));
      continue;
    }
    const auto one = collective_of(plan_, rank, action, links[static_cast<std::size_t>(rank)]);
    timed_ms_.push_back(one ? one->ms : 0);
  }
}

// Timed device: once all replicas have come a reduction takes its time, after those before it.
bool Trainer::is_over(std::size_t index) {
  if (plan_.request.computes) return true;
  double& ends = running_[index].ends;
  const double now = 1000 * monotonic_seconds();
  if (ends == 0) {
    ends = std::max(reduces_until_, now) + timed_ms_[index];
    reduces_until_ = ends;
  }
  return now >= ends;
}

void Trainer::issue(std::size_t index) {
  const LoweredAction& action = lowered_[index];
  const RankPlan& rank = memory_.plan();
  Communicator* replicas = groups_.replicas.get();
  const auto gradients = [&] {
    const auto at = static_cast<std::size_t>(action.section);
    return memory_.step_gradients(gradients_of_) +
           (rank.gradient_windows ? rank.gradient_windows->offsets[at] : rank.sections[at].offset);
  };
  const auto all_reduce = [&](Communicator* group, float* values, std::int64_t elements) {
    running_[index] = {group, group->all_reduce(values, elements), device_.mark()};
  };
  if (!plan_.request.computes) {
    if (action.kind != LoweredAction::Kind::let_go) all_reduce(replicas, &met_[index], 1);
    return;
  }
  switch (action.kind) {
    case LoweredAction::Kind::reduce_mirrors:
      all_reduce(groups_.mirrors.get(), gradients(), section(action.section).elements);
      break;
    case LoweredAction::Kind::reduce_replicas:
      if (shards()) {
        running_[index] = {replicas, replicas->reduce_scatter(gradients(), section(action.section).cuts),
                           device_.mark()};
      } else {
        all_reduce(replicas, gradients(), section(action.section).elements);
      }
      break;
    case LoweredAction::Kind::gather:
      running_[index] = {replicas, start_gather(action.section), device_.mark()};
      break;
    case LoweredAction::Kind::reduce_tied:
      if (action.tied_sum < 0) {
        sum_tied_gradients_here();
      } else {
        const TiedSum& sum = plan_.tied_sums[static_cast<std::size_t>(action.tied_sum)];
        Communicator* pair = groups_.tied_to(groups_.rank() == sum.embedding ? sum.head : sum.embedding);
        if (shards()) {  // both ends have cut the run of shards alike
          const OwnGradients own = own_gradients(tied_section(rank, sum));
          all_reduce(pair, own.values, own.elements);
        } else {
          const ElementRange range = wte_range(plan_.request.model, rank.layout, sum.first_shard, sum.last_shard);
          all_reduce(pair, memory_.step_gradients(gradients_of_) + range.offset, range.elements);
        }
      }
      break;
    case LoweredAction::Kind::let_go:
    case LoweredAction::Kind::update:
      break;
  }
}

// Each as it will run: NCCL connects the ranks of a communicator by the size of what it sums.
void Trainer::dry_run_reductions() {
  if (!plan_.request.training) return;
  for (std::size_t i = 0; i < lowered_.size(); ++i) {
    issue(i);
    await_reduction(i);
    device_.synchronize();  // the next may connect only when nothing is on its way
  }
}

void Trainer::await_reduction(std::size_t index) {
  Communicator* group = std::exchange(running_[index].group, nullptr);
  if (group == nullptr) return;
  group->await(running_[index].ticket);
  if (!is_over(index)) group->await_until([&] { return is_over(index); });
  if (!plan_.request.computes) return;
  const LoweredAction& action = lowered_[index];
  if (action.kind == LoweredAction::Kind::gather) refresh_working_parameters(action.section);
  if (action.kind == LoweredAction::Kind::reduce_replicas) keep_own_gradients(action.section);
}

void Trainer::finish_reduction(std::size_t index) {
  if (running_[index].group == nullptr) return;
  LoweredMarks& marks = lowered_marks_[index];
  marks.issued = running_[index].issued;
  marks.begin = device_.mark();
  waits_for_ = gradients_from(lowered_[index].kind);
  await_reduction(index);
  waits_for_ = nullptr;
  marks.end = device_.mark();
}

// From here on the host reads what the device computed, and waits for it by the device's means, which cannot tell a
// peer that is lost from work that takes long. So the sums must be here.
void Trainer::finish_reductions() {
  for (std::size_t i = 0; i < issued_; ++i) finish_reduction(i);
  for (Communicator* group : groups_.summing) {
    waits_for_ = gradients_from(group == groups_.mirrors.get()    ? LoweredAction::Kind::reduce_mirrors
                                : group == groups_.replicas.get() ? LoweredAction::Kind::reduce_replicas
                                                                  : LoweredAction::Kind::reduce_tied);
    group->catch_up();
  }
  waits_for_ = nullptr;
}

}  // namespace train_gpt

// From the values a user gives (one, p or p*v) to a cost per virtual stage, and from there to one per action.
#include <cmath>
#include <stdexcept>
#include <string>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/durations.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {
namespace {

constexpr double kBytesPerMillisecond = 1e6;  // of 1 GB/s

void check_value(const char* option, double value) {
  if (std::isfinite(value) && value >= 0.0) return;
  throw std::invalid_argument(std::string(option) + ": " + std::to_string(value) +
                              " is not a cost; give a number >= 0");
}

std::vector<double> per_stage(const char* option, const std::vector<double>& given, const Placement& placement) {
  for (double value : given) check_value(option, value);
  const auto p = static_cast<std::size_t>(placement.ranks);
  const auto depth = static_cast<std::size_t>(placement.depth());
  if (given.size() != 1 && given.size() != p && given.size() != depth) {
    std::string message = std::string(option) + ": " + std::to_string(given.size()) +
                          " values; give 1, one per rank (" + std::to_string(p) + ")";
    if (depth != p) message += " or one per virtual stage (" + std::to_string(depth) + ")";
    throw std::invalid_argument(message);
  }
  std::vector<double> result;
  for (const Placement::VirtualStage& stage : placement.stages) {
    if (given.size() == depth && depth > p) {
      result.push_back(given[stage.model_stage]);
    } else if (given.size() == 1) {
      result.push_back(given[0] / placement.chunks);
    } else {
      const bool bidirectional = placement.kind == Placement::Kind::bidirectional;
      result.push_back(given[bidirectional ? stage.model_stage : stage.rank] / placement.chunks);
    }
  }
  return result;
}

}  // namespace

StageCosts stage_costs(const Costs& costs, const Placement& placement) {
  StageCosts result;
  result.forward = per_stage("--cost-forward", costs.forward, placement);
  result.input = per_stage("--cost-input", costs.input, placement);
  result.weight = per_stage("--cost-weight", costs.weight, placement);
  if (!costs.fused.empty()) result.fused = per_stage("--cost-fused", costs.fused, placement);
  check_value("--cost-comm", costs.latency);
  check_value("--cost-bandwidth", costs.bandwidth);
  check_value("bytes of a message", costs.message_bytes);
  result.latency = costs.latency;
  result.message_bytes = costs.message_bytes;
  if (costs.bandwidth > 0.0) result.transfer = costs.message_bytes / (costs.bandwidth * kBytesPerMillisecond);
  return result;
}

DurationTable::DurationTable(const Schedule& schedule, const StageCosts& costs, const ActionDurations* measured)
    : schedule_(schedule), costs_(costs), measured_(measured), pairs_have_cost_(!costs.fused.empty()) {
  const std::size_t stages = schedule.placement.stages.size();
  if (costs.forward.size() != stages || costs.input.size() != stages || costs.weight.size() != stages ||
      (pairs_have_cost_ && costs.fused.size() != stages)) {
    throw std::invalid_argument("the costs are those of another placement: they cover " +
                                std::to_string(costs.forward.size()) + " virtual stages, the schedule has " +
                                std::to_string(stages));
  }
  for (std::vector<double>& times : by_op_) times.resize(stages);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    by_op_[static_cast<std::size_t>(Op::forward)][stage] = costs.forward[stage];
    by_op_[static_cast<std::size_t>(Op::backward)][stage] = costs.input[stage] + costs.weight[stage];
    by_op_[static_cast<std::size_t>(Op::backward_input)][stage] = costs.input[stage];
    by_op_[static_cast<std::size_t>(Op::backward_weight)][stage] = costs.weight[stage];
  }
  if (measured == nullptr) return;
  bool same_shape = measured->size() == schedule.lists.size();
  for (std::size_t rank = 0; same_shape && rank < measured->size(); ++rank) {
    same_shape = (*measured)[rank].size() == schedule.lists[rank].size();
  }
  if (!same_shape) throw std::invalid_argument("measured durations: not one value per action of " + schedule.name);
}

double DurationTable::pair(int rank, std::size_t position) const {
  if (measured_ != nullptr) return (*measured_)[rank][position] + (*measured_)[rank][position + 1];
  const std::vector<Action>& list = schedule_.lists[rank];
  const Action& forward = list[position].op == Op::forward ? list[position] : list[position + 1];
  return costs_.fused[forward.stage];
}

}  // namespace train_gpt

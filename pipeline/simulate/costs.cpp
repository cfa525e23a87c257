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

// Values of one kind for every link, [0] upwards and [1] downwards.
class Links {
 public:
  Links(const char* option, const std::vector<double>& given, int ranks) : option_(option), ranks_(ranks) {
    for (double value : given) check_value(option, value);
    const std::size_t p = static_cast<std::size_t>(ranks), size = given.size();
    // Between two ranks there is but one link, whoever takes it.
    const bool both = size > 1 && (size == 2 * (p - 1) || (p > 2 && size == 2 * p));
    if (size > 1 && !both && !(p > 2 && (size == p || size + 1 == p))) {
      const std::string n = std::to_string(ranks), below = std::to_string(ranks - 1);
      throw std::invalid_argument(
          std::string(option) + ": " + std::to_string(size) + " values; give 1, one per link (" + below + ", or " + n +
          " with the link from the last rank to rank 0), or those " + "upwards and then those downwards (" +
          std::to_string(2 * (ranks - 1)) + " or " + std::to_string(2 * ranks) + ")");
    }
    const auto half = static_cast<std::ptrdiff_t>(both ? size / 2 : size);
    way_[0].assign(given.begin(), given.begin() + half);
    way_[1] = both ? std::vector<double>(given.begin() + half, given.end()) : way_[0];
  }

  double operator()(int source, int destination) const {
    if (way_[0].empty()) return 0.0;
    const bool up = destination == (source + 1) % ranks_ && (ranks_ > 2 || source == 0);
    const bool down = source == (destination + 1) % ranks_;
    const std::vector<double>& way = way_[up ? 0 : 1];
    const auto link = static_cast<std::size_t>(up ? source : destination);
    if (way.size() == 1) return way[0];
    if ((up || down) && link < way.size()) return way[link];
    throw std::invalid_argument(std::string(option_) + ": no value for the link from rank " + std::to_string(source) +
                                " to rank " + std::to_string(destination) + ", which this placement takes" +
                                (up || down ? "; give " + std::to_string(ranks_) + " values per direction" : ""));
  }

 private:
  const char* option_;
  int ranks_;
  std::vector<double> way_[2];
};

}  // namespace

Hop StageCosts::hop_after(Op op, int stage, const Placement& placement) const {
  if (activation.empty()) return {};
  if (op != Op::forward) return gradient[static_cast<std::size_t>(stage)];
  return activation[static_cast<std::size_t>(placement.stages[static_cast<std::size_t>(stage)].next)];
}

LinkCost link_cost(const Costs& costs, int ranks, int source, int destination) {
  return {Links("--cost-comm", costs.latency, ranks)(source, destination),
          Links("--cost-bandwidth", costs.bandwidth, ranks)(source, destination)};
}

void set_hops(StageCosts& stages, const Costs& costs, const Placement& placement) {
  const Links latency("--cost-comm", costs.latency, placement.ranks);
  const Links bandwidth("--cost-bandwidth", costs.bandwidth, placement.ranks);
  check_value("bytes of a message", costs.message_bytes);
  check_value("--cost-send", costs.send_slowdown);
  stages.send_slowdown = costs.send_slowdown;
  stages.activation.assign(placement.stages.size(), {});
  stages.gradient = stages.activation;
  if (!costs.messages.empty() && costs.messages.size() != static_cast<std::size_t>(placement.depth()))
    throw std::invalid_argument("the sizes of messages are those of another placement");
  const auto hop = [&](int source, int destination, double bytes) {
    Hop result{latency(source, destination), 0.0, bytes};
    const double rate = bandwidth(source, destination) * kBytesPerMillisecond;
    if (rate > 0.0) result.transfer = bytes / rate;
    return result;
  };
  for (std::size_t s = 0; s < placement.stages.size(); ++s) {
    if (placement.stages[s].previous < 0) continue;
    const int rank = placement.stages[s].rank;
    const int before = placement.stages[static_cast<std::size_t>(placement.stages[s].previous)].rank;
    if (rank == before) continue;
    MessageSize size{costs.message_bytes, costs.message_bytes};
    if (!costs.messages.empty()) size = costs.messages[static_cast<std::size_t>(placement.stages[s].model_stage)];
    stages.activation[s] = hop(before, rank, size.activation);
    stages.gradient[s] = hop(rank, before, size.gradient);
  }
}

StageCosts stage_costs(const Costs& costs, const Placement& placement) {
  StageCosts result;
  result.forward = per_stage("--cost-forward", costs.forward, placement);
  result.input = per_stage("--cost-input", costs.input, placement);
  result.weight = per_stage("--cost-weight", costs.weight, placement);
  if (!costs.fused.empty()) result.fused = per_stage("--cost-fused", costs.fused, placement);
  set_hops(result, costs, placement);
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

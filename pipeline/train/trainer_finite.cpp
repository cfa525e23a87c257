// Numbers that are none: which tensor, on which rank.
#include "pipeline/train/trainer.h"

#include <algorithm>
#include <cmath>

namespace train_gpt {
namespace {

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

}  // namespace

std::string Trainer::non_finite_parameter() {
  finish_gathers();
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  const std::vector<TensorInfo> tensors = model_tensors(plan_.request.model);
  std::vector<double> found(static_cast<std::size_t>(groups_.world->size()), 0.0);  // 1 + a tensor; 0: none
  double& mine = found[static_cast<std::size_t>(groups_.world->rank())];
  std::vector<float> host;
  for (const ArenaLayout::Entry& entry : held().entries) {
    const std::int64_t elements = entry.info.elements;
    for (std::int64_t begin = 0; begin < elements && mine == 0; begin += kPiece) {
      host.resize(static_cast<std::size_t>(std::min(kPiece, elements - begin)));
      device_.to_host(host.data(), memory_.parameters() + entry.offset + begin,
                      static_cast<std::int64_t>(host.size() * sizeof(float)));
      if (!all_finite(host)) mine = 1 + entry.tensor;
    }
  }
  groups_.world->one_hot_sum(found);
  const auto first = std::ranges::find_if(found, [](double one) { return one != 0; });
  return first == found.end() ? "" : tensors[static_cast<std::size_t>(*first) - 1].name;
}

std::string Trainer::non_finite_number(std::span<const double> losses, std::span<const double> squared_sums) const {
  std::string text;
  if (const auto loss = std::ranges::find_if_not(losses, [](double x) { return std::isfinite(x); });
      loss != losses.end()) {
    const std::int64_t m = plan_.request.batch.micro_batches;
    const std::int64_t at = loss - losses.begin();
    text = "the loss of micro-batch " + std::to_string(at % m) +
           (plan_.request.batch.replicas > 1 ? " of replica " + std::to_string(at / m) : "");
  }
  const auto sum = std::ranges::find_if_not(squared_sums, [](double x) { return std::isfinite(x); });
  if (sum == squared_sums.end()) return text.empty() ? "the gradient norm" : text;
  const std::int64_t atom = sum - squared_sums.begin();
  const std::vector<TensorInfo> tensors = model_tensors(plan_.request.model);
  const auto tensor = std::ranges::find_if(
      tensors, [&](const TensorInfo& one) { return one.first_atom <= atom && atom < one.first_atom + one.atoms(); });
  const auto index = static_cast<int>(tensor - tensors.begin());
  text += (text.empty() ? "" : " and ") + std::string("the gradient of ") + tensor->name;
  for (const RankPlan& rank : plan_.ranks) {
    const auto owns = [&](const ArenaLayout::Entry& entry) { return entry.tensor == index && entry.owned; };
    if (std::ranges::any_of(rank.layout.entries, owns)) return text + " on rank " + std::to_string(rank.rank);
  }
  return text;
}

void Trainer::require_finite_loss(double loss) {
  if (std::isfinite(loss)) return;
  const std::string tensor = non_finite_parameter();
  throw NotFinite(tensor.empty() ? "the loss is not finite, though every parameter is: activations have overflowed"
                                 : "the loss is not finite: parameter " + tensor + " is not");
}

}  // namespace train_gpt

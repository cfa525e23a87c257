// The trainer's work without training: validation, and generation of text.
#include "pipeline/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pipeline/train/sampling.h"

namespace train_gpt {

double Trainer::validate(const Batch& batch) {
  begin_forwards();
  const BatchShape& shape = plan_.request.batch;
  load_tokens(batch);
  executor_.validate();
  std::vector<double> losses(static_cast<std::size_t>(shape.replicas) * static_cast<std::size_t>(shape.micro_batches),
                             0.0);
  micro_batch_losses(losses, plan_.validation.actions(groups_.rank()));
  groups_.world->one_hot_sum(losses);
  const double loss = mean_loss(losses);
  require_finite_loss(loss);
  return loss;
}

std::vector<double> Trainer::row_losses(const Batch& batch) {
  begin_forwards();
  const BatchShape& shape = plan_.request.batch;
  load_tokens(batch);
  executor_.validate();
  std::vector<double> rows(static_cast<std::size_t>(shape.step_rows()), 0.0);
  for (const Action& action : plan_.validation.actions(groups_.rank())) {
    if (action.op != Op::forward || !memory_.plan().stage_plan(action.stage).shape.has_losses()) continue;
    device_.to_host(host_losses_.data(), memory_.losses(action.micro_batch),
                    shape.micro_batch_tokens() * static_cast<std::int64_t>(sizeof(float)));
    const std::int64_t first =
        (std::int64_t{groups_.replica()} * shape.micro_batches + action.micro_batch) * shape.rows;
    for (std::int64_t token = 0; token < shape.micro_batch_tokens(); ++token) {
      rows[static_cast<std::size_t>(first + token / shape.seq_len)] +=
          static_cast<double>(host_losses_[static_cast<std::size_t>(token)]);
    }
  }
  groups_.world->one_hot_sum(rows);
  return rows;
}

void Trainer::generate(std::vector<std::int32_t> ids, std::int64_t count, const Sampling& sampling, std::uint64_t seed,
                       const std::function<bool(std::int32_t)>& take) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const BatchShape& shape = plan_.request.batch;
  std::int64_t cached = 0;  // positions
  for (std::int64_t k = 0; k < count; ++k) {
    const auto length = std::min<std::int64_t>(static_cast<std::int64_t>(ids.size()), shape.seq_len);
    // Where older ids go, all others move to other positions.
    if (length < static_cast<std::int64_t>(ids.size())) cached = 0;
    if (memory_.plan().tokens.contains(0)) {  // ids after the last one do not matter: attention is causal
      std::fill(host_tokens_.begin(), host_tokens_.end(), 0);
      std::copy(ids.end() - length, ids.end(), host_tokens_.begin());
      device_.to_device(memory_.tokens(0), host_tokens_.data(),
                        shape.micro_batch_tokens() * static_cast<std::int64_t>(sizeof(std::int32_t)));
    }
    begin_forwards();
    executor_.next_logits(cached, length - 1);
    if (plan_.request.caches) cached = length;
    std::vector<double> drawn(1, 0.0);  // by one rank; a sum with zeros elsewhere tells the others
    if (draws_tokens()) {
      const std::vector<float> logits = next_logits();
      const bool finite = std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); });
      drawn[0] = finite ? sample_token(logits, sampling, uniform_number(seed, k)) : kNone;
    }
    groups_.world->one_hot_sum(drawn);
    if (!std::isfinite(drawn[0])) require_finite_loss(drawn[0]);
    ids.push_back(static_cast<std::int32_t>(drawn[0]));
    if (!take(ids.back())) return;
  }
}

// The rank of replica 0 that holds the first copy's head.
bool Trainer::draws_tokens() const {
  const std::vector<Placement::VirtualStage>& stages = plan_.request.schedule.placement.stages;
  const auto head = std::find_if(stages.begin(), stages.end(),
                                 [](const Placement::VirtualStage& s) { return s.copy == 0 && s.next < 0; });
  return groups_.replica() == 0 && groups_.rank() == head->rank;
}

// The logits of the vocabulary proper, as fp32.
std::vector<float> Trainer::next_logits() {
  const ModelConfig& model = plan_.request.model;
  std::vector<float> logits(static_cast<std::size_t>(model.padded_vocab()));
  const Precision precision = plan_.request.precision;
  std::vector<std::uint16_t> bits(precision == Precision::bf16 ? logits.size() : 0);
  void* destination = bits.empty() ? static_cast<void*>(logits.data()) : bits.data();
  device_.to_host(destination, memory_.next_logits(), model.padded_vocab() * element_size(precision));
  std::transform(bits.begin(), bits.end(), logits.begin(), from_bf16);
  logits.resize(static_cast<std::size_t>(model.vocab));
  return logits;
}

}  // namespace train_gpt

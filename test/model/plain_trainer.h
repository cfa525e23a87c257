// A training loop without pipeline, executor or messages: stages one after the other, then norm and AdamW. What the
// product's losses, norms and hashes can be held against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/optimizer.h"
#include "test/model/stage_chain.h"

struct TrainerOptions {
  train_gpt::AdamWConstants adamw;
  double learning_rate = 1e-4;
  double grad_clip = 0;
  // Gradients are taken at the parameters of so many steps before the newest (of the first ones, before there are so
  // many), which they update.
  std::vector<int> delays = {};                        // [stage]; empty: 0
  std::function<double(std::int64_t step)> rate = {};  // instead of learning_rate
};

class PlainTrainer {
 public:
  PlainTrainer(train_gpt::Device& device, const ChainShape& shape, const TrainerOptions& options)
      : device_(device), options_(options), chain_(device, shape) {
    for (StageChain::Rank& rank : chain_.ranks())
      moments_.push_back({std::vector<float>(rank.values.size()), std::vector<float>(rank.values.size())});
  }

  StageChain& chain() { return chain_; }

  // From the first step on: an update is taken twice, less the one before it.
  void correct_delay() { corrects_ = true; }

  struct StepResult {
    double loss = 0;
    double norm = 0;
  };

  StepResult step(std::span<const MicroBatch> batches) {
    std::int64_t valid = 0;
    for (const MicroBatch& batch : batches)
      for (const std::int32_t target : batch.targets) valid += target >= 0 ? 1 : 0;
    keep_versions();
    for (std::size_t r = 0; r < options_.delays.size(); ++r) use_version(r, step_ - options_.delays[r]);
    const std::vector<float> losses = chain_.train(batches, 1.0F / static_cast<float>(valid), /*deferred=*/true);
    for (std::size_t r = 0; r < options_.delays.size(); ++r) use_version(r, step_);
    StepResult result;
    for (const float loss : losses) result.loss += static_cast<double>(loss) / static_cast<double>(valid);
    sum_tied();
    result.norm = norm();
    update(train_gpt::clip_factor(result.norm, options_.grad_clip));
    ++step_;
    return result;
  }

  std::string hash() {
    std::vector<std::uint64_t> hashes(static_cast<std::size_t>(train_gpt::atom_count(chain_.model())));
    for (StageChain::Rank& rank : chain_.ranks()) {
      std::vector<std::uint64_t> of_rank(hashes.size());
      train_gpt::parameter_hashes(device_, of_rank, rank.layout, rank.values.data());
      for (std::size_t a = 0; a < hashes.size(); ++a) hashes[a] += of_rank[a];
    }
    return train_gpt::combined_hash(hashes);
  }

 private:
  struct Moments {
    std::vector<float> m, v;
  };

  void keep_versions() {
    versions_.resize(options_.delays.size());
    for (std::size_t r = 0; r < versions_.size(); ++r) versions_[r].push_back(chain_.ranks()[r].values);
  }
  void use_version(std::size_t r, std::int64_t version) {
    chain_.ranks()[r].values = versions_[r][static_cast<std::size_t>(std::max<std::int64_t>(0, version))];
  }

  // On the embedding's rank a local add; elsewhere each end of a shard gets the sum of both.
  void sum_tied() {
    StageChain::Rank& first = chain_.ranks().front();
    train_gpt::sum_tied_gradients(device_, first.layout, first.gradients.data());
    for (StageChain::Rank& rank : chain_.ranks()) {
      for (const train_gpt::ArenaLayout::Entry& entry : rank.layout.entries) {
        if (entry.owned) continue;
        float* head = rank.gradients.data() + entry.offset;
        float* embedding = first.gradients.data() + first.layout.offset_of(entry.tensor);
        device_.add(embedding, head, entry.info.elements);
        device_.copy(head, embedding, entry.info.elements * std::int64_t{sizeof(float)});
      }
    }
  }

  double norm() {
    std::vector<double> sums(static_cast<std::size_t>(train_gpt::atom_count(chain_.model())));
    std::vector<double> scratch(sums.size()), host(sums.size());
    for (StageChain::Rank& rank : chain_.ranks()) {
      std::vector<double> of_rank(sums.size());
      train_gpt::gradient_squared_sums(device_, of_rank, scratch.data(), host.data(), rank.layout,
                                       rank.gradients.data());
      for (std::size_t a = 0; a < sums.size(); ++a) sums[a] += of_rank[a];
    }
    return train_gpt::gradient_norm(sums);
  }

  void update(float clip) {
    const train_gpt::AdamWScalars scalars = train_gpt::adamw_scalars(
        options_.adamw, options_.rate ? options_.rate(step_) : options_.learning_rate, step_, clip);
    for (std::size_t r = 0; r < moments_.size(); ++r) {
      StageChain::Rank& rank = chain_.ranks()[r];
      const train_gpt::OptimizerArenas arenas = {.new_values = rank.values.data(),
                                                 .low = nullptr,
                                                 .m = moments_[r].m.data(),
                                                 .v = moments_[r].v.data(),
                                                 .values = rank.values.data(),
                                                 .gradients = rank.gradients.data()};
      const std::vector<float> before = rank.values;
      train_gpt::adamw_step(device_, arenas, rank.layout, &scalars, options_.adamw, false);
      if (corrects_) correct(r, before);
    }
  }

  // The update is what the step did beside weight decay.
  void correct(std::size_t r, const std::vector<float>& before) {
    StageChain::Rank& rank = chain_.ranks()[r];
    updates_.resize(moments_.size());
    std::vector<double>& last = updates_[r];
    const bool first = last.empty();
    last.resize(before.size());
    const double rate = options_.rate(step_), decay = static_cast<double>(options_.adamw.weight_decay);
    for (const train_gpt::ArenaLayout::Entry& entry : rank.layout.entries) {
      const double kept = entry.info.decays ? 1 - rate * decay : 1;
      for (std::int64_t k = entry.offset; k < entry.offset + entry.info.elements; ++k) {
        const auto i = static_cast<std::size_t>(k);
        const double shrunk = kept * static_cast<double>(before[i]);
        const double update = shrunk - static_cast<double>(rank.values[i]);
        rank.values[i] = static_cast<float>(shrunk - (2 * update - (first ? update : last[i])));
        last[i] = update;
      }
    }
  }

  train_gpt::Device& device_;
  TrainerOptions options_;
  bool corrects_ = false;
  std::vector<std::vector<double>> updates_;  // [stage]: of the step before
  StageChain chain_;
  std::vector<Moments> moments_;
  std::int64_t step_ = 0;
  std::vector<std::vector<std::vector<float>>> versions_;  // [stage][version]: values
};

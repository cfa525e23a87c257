// A model cut into a chain of stages, each with parameters and gradients of its own as on a rank of its own, run
// without an executor: the plainest possible pipeline, in memory that betrays whoever relies on more than the plan
// says.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/stage.h"
#include "test/model/guarded_slot.h"

struct ChainShape {
  train_gpt::ModelConfig model;
  std::vector<int> cut;  // units per stage
  train_gpt::HeadForm head = train_gpt::HeadForm::streamed;
  std::vector<bool> recompute;  // per unit of the model; empty: none
  std::int64_t B = 1;
  std::int64_t T = 1;
};

// tokens and targets (B,T)
struct MicroBatch {
  std::vector<std::int32_t> tokens, targets;
};

class StageChain {
 public:
  StageChain(train_gpt::Device& device, const ChainShape& shape);
  ~StageChain();

  struct Rank {
    train_gpt::Stage stage;
    train_gpt::StageBytes bytes;
    train_gpt::MessageBytes before, after;
    train_gpt::ArenaLayout layout;
    std::vector<float> values, gradients;
    train_gpt::ParameterView view() { return {&layout, values.data(), values.data(), gradients.data()}; }
  };
  std::vector<Rank>& ranks() { return ranks_; }
  const train_gpt::ModelConfig& model() const { return model_; }

  // fill(out, tensor) writes one tensor's values.
  void set_parameters(const std::function<void(float*, const train_gpt::TensorInfo&)>& fill);

  // Losses of all tokens, in order. Gradients start from 0. deferred: all F, then all I, then all W; else F I W of one
  // micro-batch after the other.
  std::vector<float> train(std::span<const MicroBatch> batches, float dloss, bool deferred);
  std::vector<float> validate(const MicroBatch& batch);
  // (B,Vp) at one position of each row.
  std::vector<float> logits(const MicroBatch& batch, std::int64_t position);

  // Per tensor in canonical order; the two parts of a tied wte added.
  std::vector<std::vector<float>> gradients() const;

 private:
  struct InFlight;  // one micro-batch in one stage
  train_gpt::StageSlots slots_of(InFlight& flight, const MicroBatch& batch);
  // `results` says where losses or logits go.
  void forward(std::vector<InFlight>& flights, const MicroBatch& batch, const train_gpt::StageSlots& results,
               train_gpt::ForwardUse use);
  void forward_alone(const MicroBatch& batch, const train_gpt::StageSlots& results, train_gpt::ForwardUse use);
  void backward_input(std::vector<InFlight>& flights, const MicroBatch& batch);
  void backward_weight(std::vector<InFlight>& flights, const MicroBatch& batch);
  std::vector<InFlight> new_flights() const;

  train_gpt::Device& device_;
  train_gpt::ModelConfig model_;
  std::vector<Rank> ranks_;
  GuardedSlot scratch_;
  void* workspace_ = nullptr;
  float dloss_ = 0;
};

// All memory of a rank, allocated from its plan at once, before step 0. Pointers that it hands out are valid as long as
// it lives.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

class RankMemory {
 public:
  // Allocates every line of the plan. Throws std::runtime_error naming rank, line and bytes when memory is short.
  RankMemory(Device& device, const Plan& plan, int rank);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  // Null where the plan has none.
  float* parameters() const { return floats(MemoryUse::parameters); }
  void* working_parameters() const;  // activation precision: in fp32 the parameters themselves
  float* spare_parameters() const { return floats(MemoryUse::spare_parameters); }
  void* spare_working_parameters() const;  // likewise
  float* gradients() const { return floats(MemoryUse::gradients); }
  // The gradients of a step, where two steps have their own (MemoryUse::second_gradients).
  float* step_gradients(std::int64_t step) const {
    float* second = floats(MemoryUse::second_gradients);
    return second != nullptr && step % 2 != 0 ? second : gradients();
  }
  // The arena of a sum that waits at a place of the tree: 0 is gradients(), the largest is pending_sums().
  float* gradients(int place) const {
    return place == 0 ? gradients()
                      : floats(MemoryUse::group_gradients) + (place - 1) * plan_.gradient_layout().gradient_elements;
  }
  float* gradient_shards() const { return floats(MemoryUse::gradient_shards); }
  float* first_moment() const { return floats(MemoryUse::first_moment); }
  float* second_moment() const { return floats(MemoryUse::second_moment); }
  void* scratch() const { return of(MemoryUse::scratch); }
  void* cache(const StagePlan& stage) const;     // null without PlanRequest::caches
  void* pool_slot(int pool, int slot) const;     // null for -1
  void* ring_slot(int ring, int slot) const;     // null for -1
  std::int32_t* tokens(int micro_batch) const;   // null unless in RankPlan::tokens
  std::int32_t* targets(int micro_batch) const;  // null unless in RankPlan::targets
  float* losses(int micro_batch) const;          // null unless in RankPlan::losses
  // The losses of all micro-batches in RankPlan::losses, `stride` floats apart; the padding between them is always 0.
  struct Losses {
    const float* first = nullptr;
    std::int64_t count = 0;
    std::int64_t stride = 0;
  };
  Losses all_losses() const;
  void* next_logits() const;  // (B,Vp); null unless RankPlan::gives_logits
  double* atom_sums() const { return static_cast<double*>(of(MemoryUse::norms)); }
  AdamWScalars* scalars() const;  // on the device, after the sums

  float* last_update() const { return floats(MemoryUse::last_update); }

  // Exchanges parameters() and spare_parameters().
  void swap_parameters() { std::swap(at(MemoryUse::parameters), at(MemoryUse::spare_parameters)); }
  void swap_update() { std::swap(at(MemoryUse::spare_parameters), at(MemoryUse::last_update)); }
  void swap_working_parameters() {
    std::swap(at(MemoryUse::working_parameters), at(MemoryUse::spare_working_parameters));
  }
  // Of several versions, one after the other in memory: from now on parameters() or working_parameters() are these.
  void use_parameters(float* values) { at(MemoryUse::parameters) = values; }
  void use_working_parameters(void* low) { at(MemoryUse::working_parameters) = low; }
  void zero_gradients();
  void zero_messages();

  const RankPlan& plan() const { return plan_; }

 private:
  void*& at(MemoryUse use) { return blocks_[static_cast<std::size_t>(use)]; }
  void* of(MemoryUse use) const { return blocks_[static_cast<std::size_t>(use)]; }
  float* floats(MemoryUse use) const { return static_cast<float*>(of(use)); }
  void allocate(const MemoryLine& line);
  void zero(MemoryUse use);
  void release();
  char* token_block(int blocks) const;

  Device& device_;
  const RankPlan& plan_;
  std::array<void*, kMemoryUses> blocks_{};  // by MemoryUse
  std::vector<void*> allocated_;             // all but pools
  std::vector<void*> pools_;                 // parallel to plan_.pools
  std::vector<std::int64_t> ring_offsets_;
  std::int64_t token_stride_ = 0;
};

}  // namespace train_gpt

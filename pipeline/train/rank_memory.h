// All memory of a rank, allocated from its plan in one go before step 0. Owns everything; the pointers it hands out
// live as long as it does.
#pragma once

#include <memory>
#include <string>
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

  float* parameters() const { return static_cast<float*>(line(parameters_)); }
  void* low_parameters() const { return low_ >= 0 ? line(low_) : line(parameters_); }  // activation precision
  float* spare_parameters() const { return static_cast<float*>(line(spare_)); }
  float* gradients() const { return static_cast<float*>(line(gradients_)); }
  float* group_gradients() const { return static_cast<float*>(line(group_)); }  // null with one group
  float* first_moment() const { return static_cast<float*>(line(first_)); }
  float* second_moment() const { return static_cast<float*>(line(second_)); }
  void* scratch() const { return line(scratch_); }
  void* pool_slot(int pool, int slot) const;     // null for -1
  void* ring_slot(int ring, int slot) const;     // null for -1
  std::int32_t* tokens(int micro_batch) const;   // null unless in RankPlan::tokens
  std::int32_t* targets(int micro_batch) const;  // null unless in RankPlan::targets
  float* losses(int micro_batch) const;          // likewise
  void* next_logits() const;                     // (B,Vp); null unless RankPlan::gives_logits
  double* atom_sums() const { return static_cast<double*>(line(norms_)); }
  AdamWScalars* scalars() const;  // on the device, behind the sums

  // parameters() and spare_parameters() change places.
  void swap_parameters() { std::swap(parameters_, spare_); }
  void zero_gradients();
  void zero_messages();

  std::int64_t allocated_bytes() const { return allocated_; }
  const RankPlan& plan() const { return plan_; }

 private:
  void zero_line(int index);
  void* line(int index) const { return index < 0 ? nullptr : blocks_[static_cast<std::size_t>(index)]; }
  int find(const std::string& name) const;
  char* token_block(int blocks) const;

  Device& device_;
  const RankPlan& plan_;
  std::vector<void*> blocks_;    // parallel to plan_.memory
  std::vector<int> pool_lines_;  // pool -> line
  std::vector<std::int64_t> ring_offsets_;
  int parameters_, low_, spare_, gradients_, group_, first_, second_, scratch_, messages_, tokens_, norms_;
  std::int64_t allocated_ = 0;
  std::int64_t token_stride_ = 0;
};

}  // namespace train_gpt

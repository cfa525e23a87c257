#include "pipeline/train/rank_memory.h"

#include <stdexcept>

#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {

RankMemory::RankMemory(Device& device, const Plan& plan, int rank)
    : device_(device), plan_(plan.ranks[static_cast<std::size_t>(rank)]), pools_(plan_.pools.size(), nullptr) {
  for (const MemoryLine& line : plan_.memory) allocate(line);
  std::int64_t offset = 0;
  for (const Ring& ring : plan_.rings) {
    ring_offsets_.push_back(offset);
    offset += ring.slots * ring.slot_bytes;
  }
  const BatchShape& batch = plan.request.batch;
  token_stride_ = (batch.micro_batch_tokens() * static_cast<std::int64_t>(sizeof(std::int32_t)) + 255) / 256 * 256;
  if (void* workspace = of(MemoryUse::workspace)) {
    device_.use_workspace(workspace, plan_.bytes_of(MemoryUse::workspace));
  }
  zero(MemoryUse::parameters);  // actions run dry before parameters are known
  zero(MemoryUse::working_parameters);
  zero(MemoryUse::spare_working_parameters);
  zero(MemoryUse::tokens);  // all losses are read at once, also those that no list computes
  zero(MemoryUse::first_moment);
  zero(MemoryUse::second_moment);
  zero(MemoryUse::last_update);
  zero_gradients();
}

void RankMemory::allocate(const MemoryLine& line) {
  void*& block = line.use == MemoryUse::pool ? pools_[static_cast<std::size_t>(line.pool)] : at(line.use);
  try {
    block = device_.allocate(line.bytes);
    if (line.use != MemoryUse::pool) allocated_.push_back(block);
  } catch (const std::exception& error) {
    release();
    throw std::runtime_error("rank " + std::to_string(plan_.rank) + " has no " + format_bytes(line.bytes) + " for " +
                             line.name + " (its plan needs " + format_bytes(plan_.total_bytes()) +
                             " in all): " + error.what() +
                             ". Take --recompute auto, a schedule that keeps fewer activations, more ranks, or a "
                             "smaller --micro-batch-size");
  }
}

void RankMemory::release() {
  for (void* block : allocated_) device_.release(block);
  for (void* pool : pools_) {
    if (pool != nullptr) device_.release(pool);
  }
}

void RankMemory::zero(MemoryUse use) {
  if (of(use) != nullptr) device_.zero(of(use), plan_.bytes_of(use));
}

void RankMemory::zero_gradients() {
  zero(MemoryUse::gradients);
  zero(MemoryUse::second_gradients);
  zero(MemoryUse::gradient_shards);
  zero(MemoryUse::group_gradients);
}

void RankMemory::zero_messages() { zero(MemoryUse::messages); }

RankMemory::~RankMemory() { release(); }

void* RankMemory::working_parameters() const {
  void* low = of(MemoryUse::working_parameters);
  return low != nullptr ? low : of(MemoryUse::parameters);
}

void* RankMemory::spare_working_parameters() const {
  void* low = of(MemoryUse::spare_working_parameters);
  return low != nullptr ? low : of(MemoryUse::spare_parameters);
}

void* RankMemory::cache(const StagePlan& stage) const {
  void* const whole = of(MemoryUse::cache);
  return whole == nullptr ? nullptr : static_cast<char*>(whole) + stage.cache_offset;
}

void* RankMemory::pool_slot(int pool, int slot) const {
  if (pool < 0 || slot < 0) return nullptr;
  return static_cast<char*>(pools_[static_cast<std::size_t>(pool)]) +
         slot * plan_.pools[static_cast<std::size_t>(pool)].slot_bytes;
}

void* RankMemory::ring_slot(int ring, int slot) const {
  if (ring < 0) return nullptr;
  return static_cast<char*>(of(MemoryUse::messages)) + ring_offsets_[static_cast<std::size_t>(ring)] +
         slot * plan_.rings[static_cast<std::size_t>(ring)].slot_bytes;
}

// The tokens line: tokens, targets and losses, each of the micro-batches that the plan names, then logits.
char* RankMemory::token_block(int blocks) const {
  return static_cast<char*>(of(MemoryUse::tokens)) + blocks * token_stride_;
}

std::int32_t* RankMemory::tokens(int micro_batch) const {
  if (!plan_.tokens.contains(micro_batch)) return nullptr;
  return reinterpret_cast<std::int32_t*>(token_block(micro_batch - plan_.tokens.first));
}

std::int32_t* RankMemory::targets(int micro_batch) const {
  if (!plan_.targets.contains(micro_batch)) return nullptr;
  return reinterpret_cast<std::int32_t*>(token_block(plan_.tokens.count() + micro_batch - plan_.targets.first));
}

float* RankMemory::losses(int micro_batch) const {
  if (!plan_.losses.contains(micro_batch)) return nullptr;
  const int before = plan_.tokens.count() + plan_.targets.count();
  return reinterpret_cast<float*>(token_block(before + micro_batch - plan_.losses.first));
}

RankMemory::Losses RankMemory::all_losses() const {
  return {losses(plan_.losses.first), plan_.losses.count(), token_stride_ / static_cast<std::int64_t>(sizeof(float))};
}

void* RankMemory::next_logits() const {
  return plan_.gives_logits ? token_block(plan_.tokens.count() + plan_.targets.count() + plan_.losses.count())
                            : nullptr;
}

// In the last 256 bytes.
AdamWScalars* RankMemory::scalars() const {
  const std::int64_t sums = (plan_.bytes_of(MemoryUse::norms) - 256) / static_cast<std::int64_t>(sizeof(double));
  return reinterpret_cast<AdamWScalars*>(atom_sums() + sums);
}

}  // namespace train_gpt

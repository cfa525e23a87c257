#include "pipeline/train/rank_memory.h"

#include <stdexcept>

#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {

RankMemory::RankMemory(Device& device, const Plan& plan, int rank)
    : device_(device), plan_(plan.ranks[static_cast<std::size_t>(rank)]) {
  for (const MemoryLine& line : plan_.memory) {
    try {
      blocks_.push_back(device_.allocate(line.bytes));
    } catch (const std::exception& error) {
      const std::string text = "rank " + std::to_string(rank) + " has no " + format_bytes(line.bytes) + " for " +
                               line.name + " (its plan needs " + format_bytes(plan_.total_bytes()) +
                               " in all): " + error.what();
      for (void* block : blocks_) device_.release(block);
      throw std::runtime_error(text);
    }
    allocated_ += line.bytes;
  }
  parameters_ = find(memory::parameters);
  low_ = find(memory::low_parameters);
  spare_ = find(memory::spare_parameters);
  gradients_ = find(memory::gradients);
  group_ = find(memory::group_gradients);
  first_ = find(memory::first_moment);
  second_ = find(memory::second_moment);
  scratch_ = find(memory::scratch);
  messages_ = find(memory::messages);
  tokens_ = find(memory::tokens);
  norms_ = find(memory::norms);
  int next_line = 0;
  for (const Pool& pool : plan_.pools) {  // pools and their lines come in the same order; an empty pool has none
    if (pool.slots == 0 || !plan.request.computes) {
      pool_lines_.push_back(-1);
      continue;
    }
    while (plan_.memory[static_cast<std::size_t>(next_line)].name != pool_name(pool)) ++next_line;
    pool_lines_.push_back(next_line++);
  }
  std::int64_t offset = 0;
  for (const Ring& ring : plan_.rings) {
    ring_offsets_.push_back(offset);
    offset += ring.slots * plan_.boundary_bytes;
  }
  const BatchShape& batch = plan.request.batch;
  token_stride_ = (batch.micro_batch_tokens() * static_cast<std::int64_t>(sizeof(std::int32_t)) + 255) / 256 * 256;
  if (const int workspace = find(memory::workspace); workspace >= 0) {
    device_.use_workspace(line(workspace), plan_.memory[static_cast<std::size_t>(workspace)].bytes);
  }
  zero_line(parameters_);  // actions are rehearsed before parameters are known
  zero_line(low_);
  zero_line(first_);
  zero_line(second_);
  zero_gradients();
}

void RankMemory::zero_line(int index) {
  if (index >= 0) device_.zero(line(index), plan_.memory[static_cast<std::size_t>(index)].bytes);
}

void RankMemory::zero_gradients() {
  zero_line(gradients_);
  zero_line(group_);
}

void RankMemory::zero_messages() { zero_line(messages_); }

RankMemory::~RankMemory() {
  for (void* block : blocks_) device_.release(block);
}

int RankMemory::find(const std::string& name) const {
  for (std::size_t i = 0; i < plan_.memory.size(); ++i) {
    if (plan_.memory[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

void* RankMemory::pool_slot(int pool, int slot) const {
  if (pool < 0 || slot < 0) return nullptr;
  char* base = static_cast<char*>(line(pool_lines_[static_cast<std::size_t>(pool)]));
  return base + slot * plan_.pools[static_cast<std::size_t>(pool)].slot_bytes;
}

void* RankMemory::ring_slot(int ring, int slot) const {
  if (ring < 0) return nullptr;
  return static_cast<char*>(line(messages_)) + ring_offsets_[static_cast<std::size_t>(ring)] +
         slot * plan_.boundary_bytes;
}

// The tokens line: tokens, targets and losses, each of the micro-batches that the plan names, then logits.
char* RankMemory::token_block(int blocks) const { return static_cast<char*>(line(tokens_)) + blocks * token_stride_; }

std::int32_t* RankMemory::tokens(int micro_batch) const {
  if (!plan_.tokens.contains(micro_batch)) return nullptr;
  return reinterpret_cast<std::int32_t*>(token_block(micro_batch - plan_.tokens.first));
}

std::int32_t* RankMemory::targets(int micro_batch) const {
  if (!plan_.targets.contains(micro_batch)) return nullptr;
  return reinterpret_cast<std::int32_t*>(token_block(plan_.tokens.count() + micro_batch - plan_.targets.first));
}

float* RankMemory::losses(int micro_batch) const {
  if (!plan_.targets.contains(micro_batch)) return nullptr;
  const int before = plan_.tokens.count() + plan_.targets.count();
  return reinterpret_cast<float*>(token_block(before + micro_batch - plan_.targets.first));
}

void* RankMemory::next_logits() const {
  return plan_.gives_logits ? token_block(plan_.tokens.count() + 2 * plan_.targets.count()) : nullptr;
}

AdamWScalars* RankMemory::scalars() const {
  const std::int64_t bytes = plan_.memory[static_cast<std::size_t>(norms_)].bytes;
  return reinterpret_cast<AdamWScalars*>(static_cast<char*>(line(norms_)) + bytes - 256);
}

}  // namespace train_gpt

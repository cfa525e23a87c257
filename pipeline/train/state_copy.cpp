#include "pipeline/train/state_copy.h"

#include <stdexcept>

#include "model/checkpoint.h"
#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {
namespace {

constexpr std::align_val_t kAlignment{4096};

}  // namespace

void StateCopy::Release::operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }

StateCopy::StateCopy(Device& device, Trainer& trainer, const ModelConfig& model)
    : device_(device), trainer_(trainer), memory_(trainer.memory()), model_(model), host_(make_cpu_device(1)) {
  const RankPlan& plan = memory_.plan();
  const std::int64_t bytes = before(MemoryUse::second_moment) +
                             (trainer.written_moments() != nullptr ? plan.bytes_of(MemoryUse::second_moment) : 0);
  if (plan.copy_bytes == 0 || bytes == 0) return;
  void* block = ::operator new(static_cast<std::size_t>(bytes), kAlignment, std::nothrow);
  if (block == nullptr) {
    throw std::runtime_error("rank " + std::to_string(plan.rank) + " has no " + format_bytes(bytes) +
                             " for the copy from which checkpoints are written");
  }
  bytes_.reset(static_cast<std::byte*>(block));
  size_ = bytes;
}

// Parameters and the two moments lie one after the other, as long as the plan's lines.
std::int64_t StateCopy::before(MemoryUse use) const {
  const RankPlan& plan = memory_.plan();
  std::int64_t bytes = 0;
  if (use == MemoryUse::parameters) return bytes;
  if (trainer_.written_parameters() != nullptr) bytes += plan.bytes_of(MemoryUse::parameters);
  if (use == MemoryUse::first_moment) return bytes;
  if (trainer_.written_moments() != nullptr) bytes += plan.bytes_of(MemoryUse::first_moment);
  return bytes;
}

void StateCopy::take(bool moments) {
  trainer_.finish_gathers();
  const auto copy = [&](MemoryUse use, const float* from) {
    device_.to_host(at(use), from, memory_.plan().bytes_of(use));
  };
  if (!bytes_) return;
  if (trainer_.written_parameters() != nullptr) copy(MemoryUse::parameters, memory_.parameters());
  if (!moments || trainer_.written_moments() == nullptr) return;
  copy(MemoryUse::first_moment, memory_.first_moment());
  copy(MemoryUse::second_moment, memory_.second_moment());
}

void StateCopy::write_model(const std::string& path) const {
  const ArenaLayout* layout = trainer_.written_parameters();
  if (!bytes_ || layout == nullptr) return;
  write_model_tensors(*host_, path, model_, Precision::fp32, *layout, at(MemoryUse::parameters));
}

void StateCopy::write_moments(const std::string& path) const {
  const ArenaLayout* layout = trainer_.written_moments();
  if (!bytes_ || layout == nullptr) return;
  train_gpt::write_moments(*host_, path, model_, *layout, at(MemoryUse::first_moment), at(MemoryUse::second_moment));
}

}  // namespace train_gpt

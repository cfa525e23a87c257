#include "pipeline/train/state_copy.h"

#include <array>
#include <stdexcept>

#include "model/checkpoint.h"
#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {
namespace {

constexpr std::array kCopied = {MemoryUse::parameters, MemoryUse::first_moment, MemoryUse::second_moment};
constexpr std::align_val_t kAlignment{4096};

}  // namespace

void StateCopy::Release::operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }

StateCopy::StateCopy(Device& device, const RankMemory& memory, const ModelConfig& model, bool owns)
    : device_(device), memory_(memory), model_(model), host_(make_cpu_device(1)) {
  const std::int64_t bytes = memory.plan().copy_bytes;
  if (!owns || bytes == 0) return;
  void* block = ::operator new(static_cast<std::size_t>(bytes), kAlignment, std::nothrow);
  if (block == nullptr) {
    throw std::runtime_error("rank " + std::to_string(memory.plan().rank) + " has no " + format_bytes(bytes) +
                             " for the copy from which checkpoints are written");
  }
  bytes_.reset(static_cast<std::byte*>(block));
}

// One behind the other, as long as the plan's lines.
float* StateCopy::at(MemoryUse use) const {
  std::byte* place = bytes_.get();
  for (const MemoryUse one : kCopied) {
    if (one == use) break;
    place += memory_.plan().bytes_of(one);
  }
  return reinterpret_cast<float*>(place);
}

void StateCopy::take(bool moments) {
  if (!bytes_) return;
  const auto copy = [&](MemoryUse use, const float* from) {
    device_.to_host(at(use), from, memory_.plan().bytes_of(use));
  };
  copy(MemoryUse::parameters, memory_.parameters());
  if (!moments) return;
  copy(MemoryUse::first_moment, memory_.first_moment());
  copy(MemoryUse::second_moment, memory_.second_moment());
}

void StateCopy::write_model(const std::string& path) const {
  if (!bytes_) return;
  write_model_tensors(*host_, path, model_, Precision::fp32, memory_.plan().layout, at(MemoryUse::parameters));
}

void StateCopy::write_moments(const std::string& path) const {
  if (!bytes_) return;
  train_gpt::write_moments(*host_, path, model_, memory_.plan().layout, at(MemoryUse::first_moment),
                           at(MemoryUse::second_moment));
}

}  // namespace train_gpt

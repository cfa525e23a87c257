// Kernel launches. The source rewriter turns
//   scale<4><<<grid, block, shared, stream>>>(out, n);
// into
//   ::emulator::launcher("scale<4>", __FILE__, __LINE__, (scale<4>), grid, block, shared, stream)(out, n);
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "block.h"

namespace emulator {

struct PointerArgument {
  const void* pointer;
  int position;
};
// Demands that pointer arguments point into device-accessible memory (or are null), checks the launch's limits, and
// appends the launch to the stream.
void submit(std::shared_ptr<Launch> launch, const PointerArgument* pointers, int count, cudaStream_t stream);

template <class... Parameters>
class Launcher {
 public:
  using Kernel = void (*)(Parameters...);

  Launcher(const char* name, Where where, Kernel kernel, dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream)
      : pending_(std::make_shared<Pending>(kernel)), stream_(stream) {
    pending_->kernel = name;
    pending_->where = where;
    pending_->function = reinterpret_cast<const void*>(kernel);
    pending_->grid = grid;
    pending_->block = block;
    pending_->dynamic_shared = shared;
  }

  // The arguments, converted as in a call of the kernel.
  void operator()(Parameters... given) {
    pending_->values = std::tuple<std::decay_t<Parameters>...>(std::move(given)...);
    pending_->arguments = pending_.get();
    pending_->argument_bytes = sizeof(Pending);
    pending_->invoke = [](void* pending) {
      auto* self = static_cast<Pending*>(pending);
      std::apply(self->function_pointer, self->values);
    };
    PointerArgument pointers[sizeof...(Parameters) + 1];
    int count = 0;
    int position = 0;
    const auto note = [&](const auto& value) {
      ++position;
      using Value = std::decay_t<decltype(value)>;
      if constexpr (std::is_pointer_v<Value> && !std::is_function_v<std::remove_pointer_t<Value>>) {
        pointers[count++] = {static_cast<const void*>(value), position};
      }
    };
    std::apply([&](const auto&... value) { (note(value), ...); }, pending_->values);
    submit(pending_, pointers, count, stream_);
  }

 private:
  struct Pending : Launch {
    explicit Pending(Kernel pointer) : function_pointer(pointer) {}
    Kernel function_pointer;
    std::tuple<std::decay_t<Parameters>...> values;
  };
  std::shared_ptr<Pending> pending_;
  cudaStream_t stream_;
};

template <class... Parameters>
Launcher<Parameters...> launcher(const char* name, const char* file, int line, void (*kernel)(Parameters...), dim3 grid,
                                 dim3 block, std::size_t shared = 0, cudaStream_t stream = nullptr) {
  return Launcher<Parameters...>(name, {file, line}, kernel, grid, block, shared, stream);
}

// cudaLaunchKernelEx; attributes (clusters, programmatic launch) are not supported and reported.
void require_no_attributes(const cudaLaunchConfig_t& config, Where where);

template <class... Parameters, class... Given>
cudaError_t launch_kernel_ex(const char* name, Where where, const cudaLaunchConfig_t* config,
                             void (*kernel)(Parameters...), Given&&... given) {
  require_no_attributes(*config, where);
  Launcher<Parameters...>(name, where, kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes,
                          config->stream)(std::forward<Given>(given)...);
  return cudaSuccess;
}

}  // namespace emulator

#define EMULATOR_FIRST_NAME(first, ...) #first
#define cudaLaunchKernelEx(config, ...)                                                                             \
  ::emulator::launch_kernel_ex(EMULATOR_FIRST_NAME(__VA_ARGS__, ), ::emulator::Where{__FILE__, __LINE__}, (config), \
                               __VA_ARGS__)

#include "commands/run/launch.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace train_gpt {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (stop != end || error != std::errc() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

Launch launch_from_environment() {
  struct Launcher {
    const char* rank;
    const char* ranks;
  };
  constexpr Launcher kLaunchers[] = {{"PMI_RANK", "PMI_SIZE"},
                                     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                     {"PMIX_RANK", "PMIX_SIZE"},
                                     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const Launcher& launcher : kLaunchers) {
    // Both are needed: Slurm gives a batch script a rank although it is not one of several.
    const std::optional<int> rank = number_in(launcher.rank), ranks = number_in(launcher.ranks);
    if (rank && ranks) return {*rank, *ranks, /*launched=*/true};
  }
  return {};
}

}  // namespace train_gpt

#include "commands/run/estimate.h"

#include <array>

#include "commands/cli/wording.h"
#include "model/flops.h"
#include "pipeline/draw/table.h"

namespace train_gpt {
namespace {

constexpr double kLongS = 3600;

struct Small {
  std::int64_t layers, heads, hidden;
};
// From larger to smaller; proposes the first that ends within an hour, else the last.
constexpr std::array<Small, 3> kSmall = {{{6, 6, 384}, {4, 4, 256}, {4, 4, 128}}};

std::string step_text(double ms) { return ms < 1500 ? with_digits(ms, 3) + " ms" : rough_duration(ms / 1000); }

}  // namespace

std::vector<std::string> estimate_lines(const EstimateRequest& request) {
  const double seconds = static_cast<double>(request.steps) * request.step_ms / 1000;
  std::vector<std::string> lines = {counted(request.steps, "step") + " of about " + step_text(request.step_ms) +
                                    ": about " + rough_duration(seconds)};
  if (seconds <= kLongS || !request.model_is_open) return lines;
  const auto operations = static_cast<double>(flops_per_token(request.model, request.seq_len));
  std::string proposal;
  for (const Small& small : kSmall) {
    ModelConfig model = request.model;
    model.layers = small.layers;
    model.heads = small.heads;
    model.hidden = small.hidden;
    const double share = static_cast<double>(flops_per_token(model, request.seq_len)) / operations;
    if (share > 0.7) continue;
    proposal = "note: a smaller model is quicker: --layers " + std::to_string(small.layers) + " --heads " +
               std::to_string(small.heads) + " --hidden " + std::to_string(small.hidden) + " takes about " +
               rough_duration(share * seconds) + "; so do fewer --steps";
    if (share * seconds <= kLongS) break;
  }
  if (!proposal.empty()) lines.push_back(proposal);
  return lines;
}

}  // namespace train_gpt

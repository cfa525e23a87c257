#include "commands/run/gpu_peak.h"

#include <array>
#include <string_view>

namespace train_gpt {
namespace {

struct Card {
  std::string_view name;
  double bf16;  // TFLOP/s
  double fp32;
};

// The first name that a description contains decides, so variants of a card come before the card.
constexpr std::array kCards = {
    Card{"GH200", 989.4, 66.9},     Card{"H200 NVL", 835.5, 60.3}, Card{"H200", 989.4, 66.9},
    Card{"H100 PCIe", 756.5, 51.2}, Card{"H100 NVL", 835.5, 60.3}, Card{"H100", 989.4, 66.9},
    Card{"GB200", 2500, 80},        Card{"B200", 2250, 75},        Card{"A100", 312, 19.5},
    Card{"L40S", 362.05, 91.6},     Card{"RTX 4090", 165.2, 82.6}, Card{"RTX 5090", 209.5, 104.8},
};
// Other cards whose names contain a name above.
constexpr std::array<std::string_view, 4> kOthers = {"Laptop", "4090 D", "5090 D", "A100X"};

}  // namespace

std::optional<double> peak_flops(const std::string& description, Precision precision) {
  for (const std::string_view other : kOthers) {
    if (description.find(other) != std::string::npos) return std::nullopt;
  }
  for (const Card& card : kCards) {
    if (description.find(card.name) == std::string::npos) continue;
    return 1e12 * (precision == Precision::bf16 ? card.bf16 : card.fp32);
  }
  return std::nullopt;
}

}  // namespace train_gpt

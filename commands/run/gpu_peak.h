// Peak rates of common training cards, for model FLOPs utilisation (MFU).
#pragma once

#include <optional>
#include <string>

#include "kernels/device.h"

namespace train_gpt {

// FLOP/s of the card named in `description` (Device::describe): bf16 dense on tensor cores with fp32 sums, fp32 without
// tensor cores, by NVIDIA's data sheets at boost clocks. Empty for a card that is not in the table, and for the cpu.
std::optional<double> peak_flops(const std::string& description, Precision precision);

}  // namespace train_gpt

#include "commands/run/gpu_peak.h"

#include <gtest/gtest.h>

using namespace train_gpt;

namespace {

std::string described(const std::string& card) { return "cuda: GPU 0, " + card + ", 132 multiprocessors"; }

TEST(GpuPeak, KnowsTheCardsAndTheirForms) {
  const auto bf16 = [](const std::string& card) { return peak_flops(described(card), Precision::bf16).value_or(0); };
  EXPECT_DOUBLE_EQ(bf16("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA H100 80GB HBM3"), 989.4e12);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA H100 PCIe"), 756.5e12);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA H200"), 989.4e12);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA B200"), 2250e12);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA GeForce RTX 4090"), 165.2e12);
  EXPECT_DOUBLE_EQ(peak_flops(described("NVIDIA H100 80GB HBM3"), Precision::fp32).value_or(0), 66.9e12);
}

TEST(GpuPeak, GuessesNothing) {
  for (const char* card :
       {"NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "Tesla T4", "NVIDIA L4"}) {
    EXPECT_EQ(peak_flops(described(card), Precision::bf16), std::nullopt) << card;
  }
  EXPECT_EQ(peak_flops("cpu: 2 threads, OpenBLAS 0.3.21", Precision::fp32), std::nullopt);
}

}  // namespace

// The kernel tests on a real GPU. Without one nothing is tested, and that is said.
#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const train_gpt::GpuCount gpus = train_gpt::count_gpus(); gpus.count == 0) {
    std::printf("skipped: the kernel tests need a GPU, and %s\n", gpus.reason.c_str());
    return 0;
  }
  return RUN_ALL_TESTS();
}

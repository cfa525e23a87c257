// The real trainer on the cuda device, one rank: plan, executor, units, optimizer and device together.
#include <cmath>

#include "kernels/local_communicator.h"
#include "test/cuda/cuda_fixture.h"
#include "test/pipeline/train/training_runs.h"

namespace train_gpt {
namespace {

// In this thread: the emulator serves one.
test::Outcome trained(const test::Run& run) {
  const std::unique_ptr<Communicator> world = std::move(make_local_communicators(1).front());
  return test::train_rank(*world, run);
}

test::Run on_cuda(Precision precision, test::Run run) {
  run.make_device = [precision] { return make_cuda_device(precision); };
  return run;
}

test::Run small(const std::string& schedule = "gpipe") {
  return {.schedule = schedule, .micro_batches = 2, .steps = 3, .validate_every = 2};
}

// Heads of 64: in bf16 the tensor cores.
test::Run with_flash_attention() { return {.micro_batches = 2, .steps = 2, .heads = 1, .hidden = 64}; }

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], tolerance * std::abs(expected[i])) << what << ' ' << i;
  }
}

void expect_equal(const test::Outcome& actual, const test::Outcome& expected, const std::string& what) {
  EXPECT_EQ(actual.losses, expected.losses) << what;
  EXPECT_EQ(actual.norms, expected.norms) << what;
  EXPECT_EQ(actual.validation, expected.validation) << what;
  EXPECT_EQ(actual.hash, expected.hash) << what;
}

TEST(CudaTraining, RecomputingGivesTheSameBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    test::Run run = with_flash_attention();
    const test::Outcome expected = trained(on_cuda(precision, run));
    run.recompute = std::vector<bool>(8, true);
    expect_equal(trained(on_cuda(precision, run)), expected, name_of(precision));
  }
}

TEST(CudaTraining, InFp32FollowsTheCpu) {
  for (const test::Run& run : {small(), with_flash_attention()}) {
    const test::Outcome cpu = trained(run), cuda = trained(on_cuda(Precision::fp32, run));
    expect_near(cuda.losses, cpu.losses, 1e-5, "loss");
    expect_near(cuda.validation, cpu.validation, 1e-5, "validation");
    expect_near(cuda.norms, cpu.norms, 1e-4, "norm");
  }
}

TEST(CudaTraining, InBf16StaysWithinOnePercentOfFp32) {
  for (const test::Run& run : {small(), with_flash_attention()}) {
    const test::Outcome fp32 = trained(run), bf16 = trained(on_cuda(Precision::bf16, run));
    expect_near(bf16.losses, fp32.losses, 0.01, "loss");
    expect_near(bf16.norms, fp32.norms, 0.05, "norm");
    EXPECT_NE(bf16.losses, fp32.losses);
  }
}

TEST(CudaTrainingLarge, SchedulesGiveTheSameBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const test::Outcome expected = trained(on_cuda(precision, small()));
    for (const char* schedule : {"interleaved", "zb-h1", "zb-v"}) {
      expect_equal(trained(on_cuda(precision, small(schedule))), expected,
                   std::string(schedule) + ' ' + name_of(precision));
    }
    test::Run stored = small();
    stored.head = HeadForm::stored;
    expect_equal(trained(on_cuda(precision, stored)), expected, "stored head " + name_of(precision));
  }
}

TEST(CudaTrainingLarge, OrdersOfThreadsAndStreamsGiveTheSameBits) {
  const emulator::Settings before = emulator::settings();
  const test::Outcome expected = trained(on_cuda(Precision::bf16, with_flash_attention()));
  emulator::settings().thread_order = emulator::ThreadOrder::random;
  emulator::settings().stream_order = emulator::StreamOrder::latest;
  expect_equal(trained(on_cuda(Precision::bf16, with_flash_attention())), expected, "random");
  emulator::settings() = before;
}

}  // namespace
}  // namespace train_gpt

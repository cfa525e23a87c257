// 41 training and 5 validation losses of llm.c's trainer, from its checkpoint and tokens, by the plainest loop over our
// units and optimizer.
#include <gtest/gtest.h>

#include "kernels/device.h"
#include "model/checkpoint.h"
#include "test/golden_formula.h"
#include "test/model/plain_trainer.h"
#include "test/model/temporary_folder.h"

using namespace train_gpt;

namespace {

TEST(Golden, FilesAreThoseWhoseLossesAreKnown) {
  EXPECT_EQ(golden::fnv1a(golden::checkpoint()), golden::kCheckpointHash);
  EXPECT_EQ(golden::fnv1a(golden::token_file(golden::kTrainTokens, golden::kTrainSeed)), golden::kTrainHash);
  EXPECT_EQ(golden::fnv1a(golden::token_file(golden::kValidationTokens, golden::kValidationSeed)),
            golden::kValidationHash);
}

// Rows [4 batch + first, 4 batch + first + rows) of consecutive windows.
MicroBatch window(const std::vector<std::uint16_t>& tokens, std::int64_t batch, std::int64_t first, std::int64_t rows) {
  MicroBatch result;
  const auto* begin = tokens.data() + (batch * golden::kRows + first) * golden::kSeqLen;
  result.tokens.assign(begin, begin + rows * golden::kSeqLen);
  result.targets.assign(begin + 1, begin + 1 + rows * golden::kSeqLen);
  return result;
}

struct Losses {
  std::vector<double> training, validation;
  std::string hash;
};

Losses golden_run(const std::vector<int>& cut, HeadForm head, std::int64_t micro_batches) {
  const TemporaryFolder folder;
  const ModelFile file(folder.write("golden.bin", golden::checkpoint()));
  const std::unique_ptr<Device> device = make_cpu_device(2);
  ChainShape shape;
  shape.model = file.config();
  shape.cut = cut;
  shape.head = head;
  shape.B = golden::kRows / micro_batches;
  shape.T = golden::kSeqLen;
  PlainTrainer trainer(*device, shape, {.adamw = {}, .learning_rate = 1e-4, .grad_clip = 0});
  trainer.chain().set_parameters(
      [&](float* out, const TensorInfo& tensor) { file.read(out, tensor, 0, tensor.elements); });

  const std::vector<std::uint16_t> train_tokens = golden::tokens(golden::kTrainTokens, golden::kTrainSeed);
  const std::vector<std::uint16_t> val_tokens = golden::tokens(golden::kValidationTokens, golden::kValidationSeed);
  const auto batches = [&](const std::vector<std::uint16_t>& tokens, std::int64_t batch) {
    std::vector<MicroBatch> result;
    for (std::int64_t i = 0; i < micro_batches; ++i) result.push_back(window(tokens, batch, i * shape.B, shape.B));
    return result;
  };
  Losses losses;
  for (std::int64_t step = 0; step < golden::kSteps; ++step) {
    if (step % golden::kValidateEvery == 0) {
      double sum = 0;
      for (std::int64_t k = 0; k < golden::kValidationBatches; ++k)
        for (const MicroBatch& batch : batches(val_tokens, k))
          for (const float loss : trainer.chain().validate(batch)) sum += static_cast<double>(loss);
      losses.validation.push_back(sum / (golden::kValidationBatches * golden::kRows * golden::kSeqLen));
    }
    losses.training.push_back(trainer.step(batches(train_tokens, step)).loss);
  }
  losses.hash = trainer.hash();
  return losses;
}

TEST(Golden, LossesAreThoseOfThePublicTrainer) {
  const Losses one = golden_run({10}, HeadForm::streamed, 1);
  ASSERT_EQ(one.training.size(), golden::kTrainLosses.size());
  for (std::size_t i = 0; i < one.training.size(); ++i)
    EXPECT_NEAR(one.training[i], golden::kTrainLosses[i], golden::kTolerance) << "step " << i;
  ASSERT_EQ(one.validation.size(), golden::kValidationLosses.size());
  for (std::size_t i = 0; i < one.validation.size(); ++i)
    EXPECT_NEAR(one.validation[i], golden::kValidationLosses[i], golden::kTolerance) << "validation " << i;

  // Four stages on four ranks, two micro-batches: the same losses to rounding; against one rank with the same
  // micro-batches, the same parameters to the bit.
  const Losses four = golden_run({3, 2, 2, 3}, HeadForm::stored, 2);
  for (std::size_t i = 0; i < four.training.size(); ++i)
    EXPECT_NEAR(four.training[i], golden::kTrainLosses[i], golden::kTolerance) << "step " << i;
  EXPECT_EQ(four.hash, golden_run({10}, HeadForm::streamed, 2).hash);
}

}  // namespace

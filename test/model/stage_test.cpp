// The bitwise contract of the model: whatever the cut into stages, the form of the head, what is recomputed, the order
// of F, I and W that keeps micro-batches in order, and the number of threads, losses and gradients have the same bits.
// The chain runs in slots of exactly the planned bytes that are full of NaN before use and move between actions.
#include "model/stage.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>

#include "data/splitmix64.h"
#include "kernels/device.h"
#include "model/unit_head.h"
#include "test/model/stage_chain.h"

using namespace train_gpt;

namespace {

ModelConfig small_model(bool tied) {
  ModelConfig config;
  config.layers = 2;
  config.heads = 2;
  config.hidden = 24;
  config.vocab = 150;
  config.max_seq_len = 70;
  config.tied = tied;
  return config;
}

std::vector<MicroBatch> micro_batches(const ModelConfig& config, std::int64_t rows, int count) {
  std::vector<MicroBatch> batches(static_cast<std::size_t>(count));
  std::uint64_t k = 0;
  const auto token = [&] {
    return static_cast<std::int32_t>(splitmix64(k++) % static_cast<std::uint64_t>(config.vocab));
  };
  // First and last columns of the shards, in turn.
  const auto edge = [&](std::int64_t i) {
    const VocabularyShard shard = vocabulary_shard(config, static_cast<int>(i / 2 % head_shards(config)));
    return static_cast<std::int32_t>(shard.begin + (i % 2 == 0 ? 0 : shard.columns - 1));
  };
  for (MicroBatch& batch : batches)
    for (std::int64_t i = 0; i < rows; ++i) {
      batch.tokens.push_back(token());
      batch.targets.push_back(i % 13 == 5 ? -1 : i % 13 == 6 ? edge(i / 13) : token());
    }
  return batches;
}

struct Result {
  std::vector<float> losses;
  std::vector<std::vector<float>> gradients;
};

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_FALSE(std::isnan(a[i])) << what << "[" << i << "]";
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i])) << what << "[" << i << "]";
  }
}

Result run(const ChainShape& shape, int threads, bool deferred, int count) {
  const std::unique_ptr<Device> device = make_cpu_device(threads);
  StageChain chain(*device, shape);
  chain.set_parameters(
      [&](float* out, const TensorInfo& tensor) { initialise(out, shape.model, tensor, /*seed=*/42); });
  const std::vector<MicroBatch> batches = micro_batches(shape.model, shape.B * shape.T, count);
  Result result;
  result.losses = chain.train(batches, 0.01F, deferred);
  result.gradients = chain.gradients();
  std::vector<float> validated;
  for (const MicroBatch& batch : batches)
    for (const float loss : chain.validate(batch)) validated.push_back(loss);
  expect_same_bits(result.losses, validated, "loss of validation");
  const Result after_validation = {result.losses, chain.gradients()};
  for (std::size_t t = 0; t < result.gradients.size(); ++t)
    expect_same_bits(result.gradients[t], after_validation.gradients[t], "gradient after validation");
  return result;
}

void expect_same(const Result& a, const Result& b, const std::string& what) {
  SCOPED_TRACE(what);
  expect_same_bits(a.losses, b.losses, "loss");
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t t = 0; t < a.gradients.size(); ++t)
    expect_same_bits(a.gradients[t], b.gradients[t], "gradient of tensor " + std::to_string(t));
}

TEST(Stage, BitsDoNotDependOnCutHeadRecomputationOrderAndThreads) {
  const std::vector<std::vector<int>> cuts = {{6}, {1, 5}, {5, 1}, {2, 2, 2}, {3, 3}, {1, 1, 1, 1, 1, 1}};
  const std::vector<std::vector<bool>> recomputations = {
      {}, {true, true, true, true, true, true}, {false, true, false, false, true, false}};
  for (const bool tied : {true, false}) {
    ChainShape shape;
    shape.model = small_model(tied);
    shape.B = 1;
    shape.T = 65;
    shape.cut = cuts.front();
    const Result oracle = run(shape, /*threads=*/1, /*deferred=*/false, 2);
    for (const std::vector<int>& cut : cuts)
      for (const std::vector<bool>& recompute : recomputations)
        for (const HeadForm head : {HeadForm::streamed, HeadForm::stored}) {
          shape.cut = cut;
          shape.recompute = recompute;
          shape.head = head;
          const int threads = 1 + static_cast<int>(cut.size() % 2);
          const std::string what = std::to_string(cut.size()) + " stages, head " +
                                   std::to_string(static_cast<int>(head)) + ", recomputation of " +
                                   std::to_string(recompute.size()) + ", tied " + std::to_string(tied);
          expect_same(oracle, run(shape, threads, /*deferred=*/true, 2), what);
        }
  }
}

TEST(Stage, BitsDoNotDependOnThreads) {
  ChainShape shape;
  shape.model = small_model(true);
  shape.B = 3;
  shape.T = 33;
  shape.cut = {6};
  const Result one = run(shape, 1, false, 2);
  for (const int threads : {2, 3, 5}) expect_same(one, run(shape, threads, false, 2), std::to_string(threads));
}

// Three shards: whole, in one piece each, with layers on the same stage, with and without their exponentials; targets
// at both edges of every shard.
TEST(Stage, BitsDoNotDependOnHowTheHeadIsCut) {
  for (const bool tied : {true, false}) {
    ChainShape shape;
    shape.model = small_model(tied);
    shape.model.layers = 1;
    shape.model.hidden = 10;
    shape.model.heads = 2;
    shape.model.vocab = 4997;
    shape.B = 1;
    shape.T = 67;
    ASSERT_EQ(head_shards(shape.model), 3);
    ASSERT_EQ(unit_count(shape.model), 6);
    shape.cut = {6};
    const Result oracle = run(shape, 1, /*deferred=*/false, 2);
    const std::vector<std::vector<int>> cuts = {{6}, {3, 3}, {3, 1, 1, 1}, {2, 2, 2}, {4, 2}, {5, 1}};
    for (const std::vector<int>& cut : cuts)
      for (const std::vector<bool>& recompute :
           {std::vector<bool>{}, {true, true, true, true, true, true}, {false, false, false, false, true, false}}) {
        shape.cut = cut;
        shape.recompute = recompute;
        shape.head = cut.size() == 1 ? HeadForm::stored : HeadForm::streamed;
        const int threads = 1 + static_cast<int>(cut.size() % 2);
        expect_same(oracle, run(shape, threads, /*deferred=*/true, 2), std::to_string(cut.size()) + " stages");
      }
  }
}

// Several chunks of rows in the head: the vocabulary is so large that one chunk holds 64 rows.
TEST(Stage, HeadFormsAgreeOverSeveralChunks) {
  ChainShape shape;
  shape.model = {.layers = 1, .heads = 1, .hidden = 4, .vocab = 70001, .max_seq_len = 90, .tied = true};
  shape.B = 2;
  shape.T = 75;
  ASSERT_EQ(head_chunk_rows(HeadChunks::for_cpu, 150, shape.model.padded_vocab(), 2048), 64);
  shape.cut = {38};  // 35 shards
  const Result streamed = run(shape, 1, false, 1);
  shape.head = HeadForm::stored;
  shape.cut = {2, 36};
  expect_same(streamed, run(shape, 2, true, 1), "stored");
  shape.cut = {2, 5, 20, 11};
  expect_same(streamed, run(shape, 1, true, 1), "spread");
}

// Generation: the logits of a position are those that the losses come from.
TEST(Stage, LogitsOfOnePositionAgreeWithTheLosses) {
  for (const std::vector<int>& cut : {std::vector<int>{6}, {3, 2, 1}, {5, 2, 1}}) {
    ChainShape shape;
    shape.model = small_model(true);
    if (cut.front() == 5) shape.model.vocab = 4997;  // three shards
    shape.B = 2;
    shape.T = 9;
    shape.cut = cut;
    const std::unique_ptr<Device> device = make_cpu_device(1);
    StageChain chain(*device, shape);
    chain.set_parameters(
        [&](float* out, const TensorInfo& tensor) { initialise(out, shape.model, tensor, /*seed=*/42); });
    const MicroBatch batch = micro_batches(shape.model, 18, 1).front();
    const std::vector<float> losses = chain.validate(batch);
    const std::int64_t vocab = shape.model.vocab;
    for (const std::int64_t position : {0, 4, 8}) {
      const std::vector<float> logits = chain.logits(batch, position);
      for (std::int64_t b = 0; b < shape.B; ++b) {
        const float* row = logits.data() + b * shape.model.padded_vocab();
        const auto token = static_cast<std::size_t>(b * shape.T + position);
        if (batch.targets[token] < 0) continue;
        double sum = 0;
        for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v]));
        EXPECT_NEAR(losses[token], std::log(sum) - static_cast<double>(row[batch.targets[token]]), 1e-5);
      }
    }
  }
}

TEST(Stage, HeadChunksFollowFromTheShape) {
  const auto for_cpu = [](std::int64_t rows, std::int64_t Vp) {
    return head_chunk_rows(HeadChunks::for_cpu, rows, Vp, 2048);
  };
  EXPECT_EQ(for_cpu(1024, 50304), 128);    // 25.8 MB
  EXPECT_EQ(for_cpu(100, 50304), 100);     // not more rows than there are
  EXPECT_EQ(for_cpu(65536, 50304), 4096);  // a sixteenth
  EXPECT_EQ(for_cpu(1024, 1 << 20), 64);   // at least 64
  EXPECT_EQ(for_cpu(100000, 1024), 8192);  // 32 MiB
}

TEST(Stage, HeadChunksOfGpusAreFourAtMost) {
  const auto for_gpu = [](std::int64_t rows, std::int64_t width) {
    return head_chunk_rows(HeadChunks::for_gpu, rows, 50304, width);
  };
  EXPECT_EQ(for_gpu(16384, 2048), 4096);   // a quarter
  EXPECT_EQ(for_gpu(4096, 2048), 3072);    // 24 MiB
  EXPECT_EQ(for_gpu(1000, 2048), 1000);    // not more rows than there are
  EXPECT_EQ(for_gpu(100000, 256), 25024);  // a quarter, in blocks of 64
  for (const std::int64_t rows : {1, 63, 12289, 16385, 65535, 100000}) {
    EXPECT_LE((rows + for_gpu(rows, 2048) - 1) / for_gpu(rows, 2048), 4) << rows;
  }
}

// The plan in numbers, for GPT-2 sizes: what the split backward keeps, per token and unit, in multiples of C.
TEST(StageBytes, AreThoseOfTheTensorsThatLiveOn) {
  StageShape shape;
  shape.model = preset("d12");
  shape.B = 4;
  shape.T = 256;
  const std::int64_t N = shape.rows();
  const std::int64_t C = shape.model.hidden;
  const std::int64_t statistics = 2 * N * 4;
  const std::int64_t norm_gradients = 2 * C * 4;

  shape.first_unit = 1, shape.last_unit = 2;
  StageBytes bytes = stage_bytes(shape, Precision::fp32);
  EXPECT_EQ(message_bytes(shape, Precision::fp32, 1).of(ForwardUse::training), N * C * 4);
  EXPECT_EQ(bytes.forward_to_input, N * 4 * C * 4 + statistics + N * 12 * 4);  // x, qkv, statistics, log-sum-exp
  EXPECT_EQ(bytes.forward_to_weight, N * 2 * C * 4);
  EXPECT_EQ(bytes.input_to_weight, N * 4 * C * 4 + norm_gradients);

  shape.first_unit = 2, shape.last_unit = 3;
  bytes = stage_bytes(shape, Precision::fp32);
  EXPECT_EQ(bytes.forward_to_input, N * 5 * C * 4 + statistics);
  EXPECT_EQ(bytes.forward_to_weight, N * 5 * C * 4);
  EXPECT_EQ(bytes.input_to_weight, N * 5 * C * 4 + norm_gradients);
  EXPECT_EQ(stage_bytes(shape, Precision::bf16).forward_to_weight, N * 5 * C * 2);

  shape.recompute = {true};
  bytes = stage_bytes(shape, Precision::fp32);
  EXPECT_EQ(bytes.forward_to_input, N * C * 4);
  EXPECT_EQ(bytes.forward_to_weight, 0);
  EXPECT_EQ(bytes.input_to_weight, N * 10 * C * 4 + norm_gradients);

  shape.recompute = {};
  shape.first_unit = 25, shape.last_unit = 50;
  bytes = stage_bytes(shape, Precision::fp32);
  EXPECT_EQ(bytes.forward_to_input, N * C * 4);
  EXPECT_EQ(bytes.forward_to_weight, 0);
  EXPECT_EQ(bytes.input_to_weight, 0);
  // X, E, the row's maximum after each of 25 shards, and the final maximum and sum; x, statistics and dX till I.
  shape.head = HeadForm::stored;
  bytes = stage_bytes(shape, Precision::fp32);
  EXPECT_EQ(bytes.forward_to_weight, N * (C + 50304 + 25 + 2) * 4);
  EXPECT_EQ(bytes.forward_to_input, N * 2 * C * 4 + statistics);
  EXPECT_EQ(bytes.input_to_weight, norm_gradients);

  // A part in the middle: the last shard is 15 or 16 blocks of 128 columns wide. dX, maximum and sum come with I.
  shape.first_unit = 30, shape.last_unit = 31;
  bytes = stage_bytes(shape, Precision::bf16);
  const std::int64_t width = vocabulary_shard(shape.model, 5).width;
  EXPECT_EQ(bytes.forward_to_input, 0);
  EXPECT_EQ(bytes.forward_to_weight, N * (C + width) * 2 + N * 4);
  EXPECT_EQ(bytes.input_to_weight, 2 * N * 4);
  shape.recompute = {true};
  EXPECT_EQ(stage_bytes(shape, Precision::bf16).forward_to_weight, N * C * 2 + N * 4);
}

TEST(Boundary, HasTheTensorsOfItsPlaceAndUse) {
  const ModelConfig model = preset("d12");
  const BoundarySizes sizes = {.B = 4, .T = 256, .precision = Precision::bf16};
  const std::int64_t N = 1024, C = 768;
  const auto names = [](const Boundary& boundary) {
    std::string text;
    for (int i = 0; i < boundary.count(); ++i) text += std::string(boundary[i].name) + " ";
    return text;
  };
  const auto forward = [&](int unit, ForwardUse use) { return forward_boundary(model, sizes, unit, use); };
  for (const int unit : {1, 24, 25}) {
    EXPECT_EQ(names(forward(unit, ForwardUse::training)), "x ");
    EXPECT_EQ(forward(unit, ForwardUse::generation).bytes(), N * C * 2);
    EXPECT_EQ(backward_boundary(model, sizes, unit).bytes(), N * C * 2);
  }
  // In bf16 three times a layer's on the way forward and twice on the way back, and 2 or 3 numbers a row.
  EXPECT_EQ(names(forward(26, ForwardUse::training)), "X m s z A ");
  EXPECT_EQ(forward(26, ForwardUse::training).bytes(), 3 * N * C * 2 + 3 * N * 4);
  EXPECT_EQ(names(forward(49, ForwardUse::validation)), "X m s z ");
  EXPECT_EQ(names(forward(49, ForwardUse::generation)), "X logits ");
  EXPECT_EQ(forward(49, ForwardUse::generation).bytes(), 4 * (C + vocabulary_shard(model, 24).begin) * 2);
  EXPECT_EQ(names(backward_boundary(model, sizes, 26)), "dX m s ");
  EXPECT_EQ(backward_boundary(model, sizes, 26).bytes(), 2 * N * C * 2 + 2 * N * 4);
}

TEST(StageBytes, AreCountedIn64Bits) {
  StageShape shape;
  shape.model = {.layers = 48, .heads = 32, .hidden = 8192, .vocab = 128000, .max_seq_len = 8192, .tied = true};
  shape.first_unit = 97, shape.last_unit = 160;
  shape.head = HeadForm::stored;
  shape.B = 64;
  shape.T = 8192;
  EXPECT_EQ(stage_bytes(shape, Precision::fp32).forward_to_weight, 64LL * 8192 * (8192 + 128000 + 63 + 2) * 4);
}

TEST(StageShape, IsChecked) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const auto message = [&](const StageShape& shape) {
    try {
      const Stage stage(*device, shape);
      return std::string("accepted");
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
  };
  StageShape shape;
  shape.model = small_model(true);
  shape.last_unit = 6;
  shape.T = 70;
  EXPECT_EQ(message(shape), "accepted");
  shape.T = 71;
  EXPECT_NE(message(shape).find("--seq-len 71"), std::string::npos);
  shape.T = 70;
  shape.B = 0;
  EXPECT_NE(message(shape).find("--micro-batch-size 0"), std::string::npos);
  shape.B = 1;
  shape.last_unit = 7;
  EXPECT_NE(message(shape).find("[0, 7)"), std::string::npos);
  shape.last_unit = 6;
  shape.recompute = {true};
  EXPECT_NE(message(shape).find("1 flags for a stage of 6 units"), std::string::npos);
}

}  // namespace

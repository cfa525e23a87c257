// Every operation of kernels/device.h in fp32 on the cuda device against the cpu device, over odd sizes: within 1e-5 of
// the largest value. (The other files compare with references in double, in both precisions.)
#include <functional>

#include "test/cuda/cuda_fixture.h"
#include "test/kernels/shard_chain.h"

namespace train_gpt {
namespace {

struct Sizes {
  std::int64_t B, T, C, NH;
  std::int64_t N() const { return B * T; }
  std::int64_t OC() const { return 2 * C + 1; }
};

// Runs one operation on buffers of its own, and returns what it wrote.
struct Operation {
  const char* name;
  std::function<Results(Device&, const Sizes&)> run;
};

Floats nothing(std::int64_t n) { return Floats(static_cast<std::size_t>(n), NAN); }

constexpr AdamWScalars kScalars{1e-3F, 1 - 0.81F, 1 - 0.9025F, 0.7F};
const AdamWConstants kConstants{0.9F, 0.95F, 1e-8F, 0.1F};

Results embedding(Device& device, const Sizes& s) {
  const Tokens tokens(device, random_tokens(s.N(), 9, 1));
  Buffer wte(device, random_floats(9 * s.C, 2)), wpe(device, random_floats(s.T * s.C, 3)),
      out(device, nothing(s.N() * s.C)), dout(device, random_floats(s.N() * s.C, 4)),
      dwte(device, random_floats(9 * s.C, 5)), dwpe(device, random_floats(s.T * s.C, 6));
  device.embedding_forward(out, tokens, wte, wpe, s.B, s.T, s.C);
  device.embedding_backward(dwte, dwpe, dout, tokens, s.B, s.T, s.C);
  return {{"out", out.values()}, {"dwte", dwte.values()}, {"dwpe", dwpe.values()}};
}

Results layernorm(Device& device, const Sizes& s) {
  const std::int64_t n = s.N() * s.C;
  Buffer in(device, random_floats(n, 1)), weight(device, random_floats(s.C, 2)), bias(device, random_floats(s.C, 3)),
      dout(device, random_floats(n, 4)), dresidual(device, random_floats(n, 5)), out(device, nothing(n)),
      mean(device, nothing(s.N())), rstd(device, nothing(s.N())), din(device, nothing(n)),
      dweight(device, random_floats(s.C, 6)), dbias(device, random_floats(s.C, 7));
  device.layernorm_forward(out, mean, rstd, in, weight, bias, s.N(), s.C);
  device.layernorm_backward_input(din, dout, dresidual, in, mean, rstd, weight, s.N(), s.C);
  device.layernorm_backward_weight(dweight, dbias, dout, in, mean, rstd, s.N(), s.C);
  return {{"out", out.values()}, {"mean", mean.values()},       {"rstd", rstd.values()},
          {"din", din.values()}, {"dweight", dweight.values()}, {"dbias", dbias.values()}};
}

Results products(Device& device, const Sizes& s) {
  const std::int64_t n = s.N() * s.OC();
  Buffer in(device, random_floats(s.N() * s.C, 1)), weight(device, random_floats(s.OC() * s.C, 2, 0.1F)),
      bias(device, random_floats(s.OC(), 3)), residual(device, random_floats(n, 4)), out(device, nothing(n)),
      pre(device, nothing(n)), gelu(device, nothing(n)), sum(device, nothing(n));
  device.matmul_forward(out, in, weight, bias, s.N(), s.C, s.OC());
  device.matmul_gelu_forward(gelu, pre, in, weight, bias, s.N(), s.C, s.OC());
  device.matmul_residual_forward(sum, in, weight, bias, residual, s.N(), s.C, s.OC());
  return {{"out", out.values()}, {"pre", pre.values()}, {"gelu", gelu.values()}, {"residual", sum.values()}};
}

Results backward_products(Device& device, const Sizes& s) {
  const std::int64_t n = s.N() * s.C, weights = s.OC() * s.C;
  Buffer in(device, random_floats(n, 1)), weight(device, random_floats(weights, 2, 0.1F)),
      dout(device, random_floats(s.N() * s.OC(), 3)), pre(device, random_floats(n, 4, 2)), din(device, nothing(n)),
      dpre(device, nothing(n)), dweight(device, random_floats(weights, 5)), dbias(device, random_floats(s.OC(), 6)),
      first(device, nothing(weights)), first_bias(device, random_floats(s.OC(), 7));
  device.matmul_backward_input(din, dout, weight, s.N(), s.C, s.OC());
  device.matmul_gelu_backward_input(dpre, dout, weight, pre, s.N(), s.C, s.OC());
  device.matmul_backward_weight(dweight, dbias, in, dout, s.N(), s.C, s.OC());
  device.matmul_first_backward_weight(first, first_bias, in, dout, s.N(), s.C, s.OC());
  return {{"din", din.values()},     {"dpre", dpre.values()},           {"dweight", dweight.values()},
          {"dbias", dbias.values()}, {"first dweight", first.values()}, {"first dbias", first_bias.values()}};
}

Results attention(Device& device, const Sizes& s) {
  const std::int64_t n = s.N() * s.C;
  Buffer qkv(device, random_floats(3 * n, 1)), dout(device, random_floats(n, 2)), out(device, nothing(n)),
      lse(device, nothing(s.N() * s.NH)), dqkv(device, nothing(3 * n));
  device.attention_forward(out, lse, qkv, s.B, s.T, s.C, s.NH);
  device.attention_backward(dqkv, dout, qkv, out, lse, s.B, s.T, s.C, s.NH);
  return {{"out", out.values()}, {"lse", lse.values()}, {"dqkv", dqkv.values()}};
}

// Vocabularies of 127, 129 and 4500, in one shard and in several.
Results classifier(Device& device, const Sizes&) {
  Results results;
  for (ShardSizes shards : {ShardSizes{0, 8, 127, 128}, ShardSizes{0, 33, 129, 128}, ShardSizes{0, 8, 4500, 1536}}) {
    const std::vector<std::int32_t> host_targets = targets_at_edges(shards);
    shards.rows = static_cast<std::int64_t>(host_targets.size());
    const Tokens targets(device, host_targets);
    Buffer in(device, random_floats(shards.rows * shards.C, 2)), weight(device, classifier_rows(shards, 3, 1));
    const ShardResults chain = run_shards(device, shards, in, weight, targets, 0.3F, /*recompute=*/true);
    const std::string name = "V = " + std::to_string(shards.V);
    results.push_back({name + " losses", chain.losses});
    results.push_back({name + " losses alone", chain.validated});
    results.push_back({name + " din", chain.din});
    results.push_back({name + " dweight", chain.dweight});
  }
  return results;
}

Results optimizer(Device& device, const Sizes& s) {
  const std::int64_t n = s.N() * s.C;
  Floats squares = random_floats(n, 2);
  for (float& x : squares) x *= x;
  Buffer parameter(device, random_floats(n, 1)), updated(device, nothing(n)), low(device, nothing(n)),
      m(device, random_floats(n, 3)), v(device, squares), gradient(device, random_floats(n, 4)), sum(device, squares);
  const Scalars scalars(device, kScalars);
  device.adamw(updated, low, m, v, parameter, gradient, scalars, kConstants, true, n);
  device.adamw_moments(m, v, gradient, scalars, kConstants, n);
  device.add(sum, gradient, n);
  const std::int64_t atoms = (n + kAtomElements - 1) / kAtomElements;
  Buffer sums(device, nothing(2 * atoms));
  device.squared_sums(reinterpret_cast<double*>(static_cast<float*>(sums)), gradient, n);
  const Floats halves = sums.values();
  std::vector<double> wide(static_cast<std::size_t>(atoms));
  std::memcpy(wide.data(), halves.data(), wide.size() * sizeof(double));
  return {{"updated", updated.values()},
          {"low", low.values()},
          {"m", m.values()},
          {"v", v.values()},
          {"sum", sum.values()},
          {"squared sums", Floats(wide.begin(), wide.end())}};
}

Results memory(Device& device, const Sizes& s) {
  const std::int64_t n = s.N() * s.C;
  Buffer x(device, random_floats(n, 1)), copied(device, nothing(n)), zeros(device, nothing(n)),
      there(device, nothing(n)), back(device, nothing(n));
  device.copy(copied, x, n * 4);
  device.zero(zeros, n * 4);
  device.from_float(there, x, n);
  device.to_float(back, there, n);
  return {{"copy", copied.values()}, {"zero", zeros.values()}, {"to float and back", back.values()}};
}

class CudaAgreesWithCpu : public testing::TestWithParam<Sizes> {};

TEST_P(CudaAgreesWithCpu, InEveryOperation) {
  const Operation operations[] = {{"embedding", embedding}, {"layernorm", layernorm},
                                  {"products", products},   {"backward products", backward_products},
                                  {"attention", attention}, {"classifier", classifier},
                                  {"optimizer", optimizer}, {"memory", memory}};
  const Sizes sizes = GetParam();
  CudaFixture cuda(Precision::fp32, sizes.B, sizes.T, sizes.OC(), sizes.NH);
  CpuFixture cpu(1, sizes.B, sizes.T, sizes.OC(), sizes.NH);
  for (const Operation& operation : operations) {
    const Results expected = operation.run(*cpu, sizes);
    const Results results = in_all_orders([&] { return operation.run(*cuda.device, sizes); });
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      expect_close(results[i].values, doubles(expected[i].values), 1e-5,
                   std::string(operation.name) + ": " + results[i].name);
    }
  }
}

std::string sizes_name(const testing::TestParamInfo<Sizes>& info) {
  const Sizes& s = info.param;
  return "B" + std::to_string(s.B) + "_T" + std::to_string(s.T) + "_C" + std::to_string(s.C) + "_NH" +
         std::to_string(s.NH);
}
INSTANTIATE_TEST_SUITE_P(Small, CudaAgreesWithCpu,
                         testing::Values(Sizes{1, 1, 12, 1}, Sizes{3, 3, 15, 3}, Sizes{1, 65, 24, 2}), sizes_name);
INSTANTIATE_TEST_SUITE_P(Large, CudaAgreesWithCpu,
                         testing::Values(Sizes{3, 63, 20, 2}, Sizes{1, 65, 64, 1}, Sizes{1, 200, 18, 2}), sizes_name);

}  // namespace
}  // namespace train_gpt

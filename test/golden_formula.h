// Golden run: a GPT-2 checkpoint and token files that follow from a formula, in llm.c's layouts, and the losses that
// llm.c's CPU trainer prints for them (fp32, gcc -O2; PyTorch gives the same within 7e-6). Setting: 4 sequences of 64
// per step, AdamW 1e-4 constant, betas 0.9 0.999, eps 1e-8, no weight decay, no clipping. Step i reads tokens
// [256 i, 256 i + 256], row b from 64 b on, targets shifted by one. Validation averages the first 5 such batches of the
// validation file before steps 0, 10, 20, 30, 40.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace golden {

inline constexpr std::int64_t kLayers = 4, kHeads = 4, kHidden = 64, kMaxSeqLen = 64, kVocab = 1009,
                              kPaddedVocab = 1024;
inline constexpr std::int64_t kRows = 4, kSeqLen = 64, kSteps = 41, kValidationBatches = 5, kValidateEvery = 10;
inline constexpr std::uint64_t kCheckpointSeed = 1, kTrainSeed = 2, kValidationSeed = 3;
inline constexpr std::int64_t kTrainTokens = 16384, kValidationTokens = 4096;
inline constexpr double kTolerance = 5e-5;

// FNV-1a of the files' bytes, taken from the files whose losses are below.
inline constexpr std::uint64_t kCheckpointHash = 0x687e21f7fe49aec4ULL;
inline constexpr std::uint64_t kTrainHash = 0xfee5e697c7777110ULL;
inline constexpr std::uint64_t kValidationHash = 0x633119d467e022d6ULL;

inline constexpr std::array<double, kSteps> kTrainLosses = {
    6.9373455, 6.9446945, 6.9402037, 6.9117513, 6.9281526, 6.9238758, 6.9296041, 6.9163222, 6.9066291,
    6.918714,  6.9181967, 6.9255733, 6.9330235, 6.9088688, 6.9066458, 6.9106402, 6.9113116, 6.9069791,
    6.901504,  6.9043889, 6.9203868, 6.8970509, 6.9048734, 6.9123793, 6.9127364, 6.9186063, 6.9013219,
    6.890873,  6.910521,  6.9048243, 6.9040494, 6.8952031, 6.9080367, 6.8711281, 6.8769608, 6.8903599,
    6.8540444, 6.8703074, 6.8922958, 6.8778105, 6.880908};
inline constexpr std::array<double, 5> kValidationLosses = {6.9228492, 6.9115372, 6.9003549, 6.8871641, 6.8740516};

inline std::uint64_t splitmix64(std::uint64_t x) {
  std::uint64_t z = x + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

inline std::uint64_t fnv1a(std::span<const char> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  return hash;
}

template <class Element>
std::vector<char> file_bytes(const std::vector<std::int32_t>& head, const std::vector<Element>& body) {
  std::vector<std::int32_t> header = head;
  header.resize(256);
  std::vector<char> bytes(1024 + body.size() * sizeof(Element));
  std::memcpy(bytes.data(), header.data(), 1024);
  std::memcpy(bytes.data() + 1024, body.data(), body.size() * sizeof(Element));
  return bytes;
}

// The checkpoint file's bytes.
inline std::vector<char> checkpoint() {
  const std::int64_t L = kLayers, C = kHidden;
  const auto scale = static_cast<float>(0.02 * std::sqrt(3.0));
  const auto residual_scale = static_cast<float>(0.02 * std::sqrt(3.0) / std::sqrt(2.0 * static_cast<double>(L)));
  std::vector<float> body;
  const auto matrix = [&](std::int64_t count, float factor) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t bits = splitmix64((kCheckpointSeed << 32) + body.size());
      body.push_back((static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F) * factor);
    }
  };
  const auto constant = [&](std::int64_t count, float value) {
    body.insert(body.end(), static_cast<std::size_t>(count), value);
  };
  matrix(kVocab * C, scale), constant((kPaddedVocab - kVocab) * C, 0), matrix(kMaxSeqLen * C, scale);
  constant(L * C, 1), constant(L * C, 0), matrix(L * 3 * C * C, scale), constant(L * 3 * C, 0);
  matrix(L * C * C, residual_scale), constant(L * C, 0), constant(L * C, 1), constant(L * C, 0);
  matrix(L * 4 * C * C, scale), constant(L * 4 * C, 0), matrix(L * C * 4 * C, residual_scale), constant(L * C, 0);
  constant(C, 1), constant(C, 0);
  return file_bytes({20240326, 3, kMaxSeqLen, kVocab, kLayers, kHeads, kHidden, kPaddedVocab}, body);
}

inline std::vector<std::uint16_t> tokens(std::int64_t count, std::uint64_t seed) {
  std::vector<std::uint16_t> result = {0};
  for (std::int64_t i = 1; i < count; ++i) {
    const std::uint64_t h = splitmix64((seed << 32) + static_cast<std::uint64_t>(i));
    const std::uint64_t next = (h & 1) != 0 ? (31 * std::uint64_t{result.back()} + 7) % kVocab : (h >> 8) % kVocab;
    result.push_back(static_cast<std::uint16_t>(next));
  }
  return result;
}

// A token file's bytes.
inline std::vector<char> token_file(std::int64_t count, std::uint64_t seed) {
  return file_bytes({20240520, 1, static_cast<std::int32_t>(count)}, tokens(count, seed));
}

}  // namespace golden

#include "commands/cli/version.h"

namespace train_gpt {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

// kernels/cpu uses the vectors that -march=native found.
#if defined(__AVX512F__)
constexpr const char* kInstructions = "AVX-512";
#elif defined(__AVX2__)
constexpr const char* kInstructions = "AVX2";
#else
constexpr const char* kInstructions = "of the base architecture";
#endif

}  // namespace

std::string version_text() {
  return std::string("train_gpt ") + kVersion + "\ncompiler: " + kCompiler + "\nvector instructions: " + kInstructions +
         "\n";
}

}  // namespace train_gpt

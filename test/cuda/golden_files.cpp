// Writes the golden run's checkpoint and training tokens (test/golden_formula.h), and a longer token file for measuring
// speed, for scripts/gpu_check.sh; prints the losses that the public trainer gets for the golden run.
//
//   golden_files DIRECTORY
#include <cstdio>
#include <fstream>
#include <string>

#include "test/golden_formula.h"

namespace {

bool write(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (file.flush()) return true;
  std::fprintf(stderr, "golden_files: error: %s cannot be written\n", path.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: golden_files DIRECTORY\n");
    return 2;
  }
  const std::string folder = argv[1];
  if (!write(folder + "/golden.bin", golden::checkpoint())) return 1;
  if (!write(folder + "/golden_tokens.bin", golden::token_file(golden::kTrainTokens, golden::kTrainSeed))) return 1;
  constexpr std::int64_t kSpeedTokens = 1 << 18;
  if (!write(folder + "/speed_tokens.bin", golden::token_file(kSpeedTokens, golden::kTrainSeed))) return 1;
  for (const double loss : golden::kTrainLosses) std::printf("%.7f\n", loss);
  return 0;
}

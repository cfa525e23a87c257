#include "data/data_folder.h"

#include <filesystem>
#include <stdexcept>

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

// FOLDER/NAME.bin, or the pattern of its shards; empty if there are neither.
std::string token_files(const fs::path& folder, const std::string& name) {
  const fs::path whole = folder / (name + ".bin");
  const bool has_shards = fs::exists(folder / (name + "-000000.bin"));
  if (fs::exists(whole) && has_shards) {
    throw std::invalid_argument("--data: '" + folder.string() + "' has " + name + ".bin and " + name +
                                "-000000.bin, of two preparations; remove one of them, or give --train-data");
  }
  if (fs::exists(whole)) return whole.string();
  return has_shards ? (folder / (name + "-*.bin")).string() : "";
}

}  // namespace

DataFolder find_data_folder(const std::string& folder) {
  const DataFolder found{token_files(folder, "train"), token_files(folder, "val")};
  if (found.train.empty()) {
    throw std::invalid_argument("--data: '" + folder + "' has no train.bin and no train-000000.bin; make them with " +
                                "`train_gpt prepare --text 'FILES' --output " + folder + "`");
  }
  return found;
}

std::string tokenizer_in(const std::string& folder) {
  const fs::path file = fs::path(folder) / "tokenizer.json";
  return fs::is_regular_file(file) ? file.string() : "";
}

}  // namespace train_gpt

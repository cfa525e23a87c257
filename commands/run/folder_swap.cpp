#include "commands/run/folder_swap.h"

#include <filesystem>
#include <stdexcept>

#include "model/range_file.h"

namespace train_gpt {
namespace fs = std::filesystem;

std::string make_partial(const std::string& folder) {
  const std::string partial = folder + kPartial;
  remove_folder(partial);
  std::error_code error;
  fs::create_directories(partial, error);
  if (error) throw std::runtime_error(partial + ": the folder cannot be made: " + error.message());
  return partial;
}

void take_place(const std::string& folder) {
  const fs::file_status existing = fs::symlink_status(folder);
  if (fs::exists(existing)) {
    if (!fs::is_directory(existing)) {
      throw std::runtime_error(folder + ": is not a folder and would be replaced by one: move it away");
    }
    remove_folder(folder + kReplaced);
    rename_folder(folder, folder + kReplaced);
  }
  rename_folder(folder + kPartial, folder);
  sync_directory(fs::path(folder).parent_path().string());
  remove_folder(folder + kReplaced);
}

void finish_taking_place(const std::string& folder) {
  remove_folder(folder + kPartial);
  if (!fs::exists(fs::symlink_status(folder + kReplaced))) return;
  if (fs::exists(fs::symlink_status(folder))) {
    remove_folder(folder + kReplaced);
  } else {
    rename_folder(folder + kReplaced, folder);
  }
}

void remove_folder(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) throw std::runtime_error(folder + ": cannot be removed: " + error.message());
}

void remove_whole_folder(const std::string& folder) {
  const std::string removed = folder + kRemoved;
  remove_folder(removed);
  rename_folder(folder, removed);
  remove_folder(removed);
}

void rename_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw std::runtime_error(from + ": cannot be renamed to " + to + ": " + error.message());
}

}  // namespace train_gpt

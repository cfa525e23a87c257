#include "commands/run/overwritten.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "commands/run/checkpoints.h"
#include "commands/run/folder_swap.h"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 7> kMoved = {"log.jsonl",   "records.bin", "model.bin",  "tokenizer.json",
                                               "report.html", "best",        "checkpoints"};

std::string place_in(const std::string& folder) { return folder + "/overwritten"; }

bool is_there(const std::string& path) { return fs::exists(fs::symlink_status(path)); }

// True if it holds nothing but what set_run_aside() moves there.
bool is_ours(const std::string& place) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(place, error))) return false;
  const fs::directory_iterator entries(place, error);
  return !error && std::all_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    return std::find(kMoved.begin(), kMoved.end(), entry.path().filename().string()) != kMoved.end();
  });
}

// Checkpoints under other names are the user's, and stay.
void move_checkpoints(const std::string& folder, const std::string& place) {
  const std::vector<std::string> names = own_checkpoints(folder);
  if (names.empty()) return;
  fs::create_directories(place + "/checkpoints");
  for (const std::string& name : names) {
    rename_folder(folder + "/checkpoints/" + name, place + "/checkpoints/" + name);
  }
}

}  // namespace

std::string set_run_aside(const std::string& folder) {
  const std::string place = place_in(folder);
  if (is_there(place) && !is_ours(place)) {
    throw std::invalid_argument(place + ": is in the way of what --overwrite gives up: move it away");
  }
  remove_left_overs(folder);
  const bool left_something = !newest_checkpoint(folder).empty() || is_there(folder + "/model.bin");
  const std::string target = is_there(place) && !left_something ? folder + "/overwritten.removed" : place;
  remove_folder(target);
  bool any = false;
  for (const char* name : kMoved) {
    const std::string path = folder + "/" + name;
    if (!is_there(path)) continue;
    any = true;
    fs::create_directories(target);
    if (name == std::string("checkpoints")) {
      move_checkpoints(folder, target);
    } else {
      rename_folder(path, target + "/" + name);
    }
  }
  if (target != place) remove_folder(target);
  return any ? "the run that was in " + folder + " is kept in " + place + " until this one has a checkpoint" : "";
}

void remove_overwritten(const std::string& folder) {
  const std::string place = place_in(folder);
  if (is_there(place) && is_ours(place)) remove_folder(place);
}

}  // namespace train_gpt

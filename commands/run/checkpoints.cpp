#include "commands/run/checkpoints.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "model/range_file.h"
#include "pipeline/train/file_agreement.h"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "model.bin";
constexpr const char* kOptimizer = "optimizer.bin";
constexpr const char* kManifest = "manifest.json";

struct Candidate {
  std::string folder;
  CheckpointManifest manifest;
  std::string wrong;  // empty: the manifest can be used
};

Candidate read_candidate(const std::string& folder) {
  Candidate candidate{.folder = folder, .manifest = {}, .wrong = {}};
  const std::string path = folder + "/" + kManifest;
  std::ifstream file(path);
  if (!fs::is_regular_file(path) || !file) {
    candidate.wrong = "it has no " + std::string(kManifest) + ", so it was not completed";
    return candidate;
  }
  try {
    candidate.manifest = manifest_from_json({std::istreambuf_iterator<char>(file), {}});
  } catch (const std::invalid_argument& error) {
    candidate.wrong = std::string(kManifest) + ": " + error.what();
  }
  return candidate;
}

// The folders in DIR/checkpoints: those with a manifest first, the one that was written last before all others.
std::vector<Candidate> candidates_in(const std::string& output) {
  std::vector<Candidate> candidates;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(output + "/checkpoints", error)) {
    if (entry.is_directory(error)) candidates.push_back(read_candidate(entry.path().string()));
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.wrong.empty() != b.wrong.empty()) return a.wrong.empty();
    if (a.manifest.written != b.manifest.written) return a.manifest.written > b.manifest.written;
    return a.manifest.step != b.manifest.step ? a.manifest.step > b.manifest.step : a.folder > b.folder;
  });
  return candidates;
}

void write_manifest(const std::string& folder, const CheckpointManifest& manifest) {
  const std::string path = folder + "/" + kManifest;
  const std::string text = to_json(manifest);
  create_range_file(temporary_name(path), static_cast<std::int64_t>(text.size()));
  {
    RangeFile file(temporary_name(path));
    file.write(0, text.data(), static_cast<std::int64_t>(text.size()));
    file.sync();
  }
  publish(path);
}

void remove_folder(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) throw std::runtime_error(folder + ": cannot be removed: " + error.message());
}

void rename_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw std::runtime_error(from + ": cannot be renamed to " + to + ": " + error.message());
}

// Puts `partial` in the place of `folder`. A complete checkpoint of that name (an earlier run's) stays beside it, and
// can be found, until the new one has its manifest.
void take_place(const std::string& partial, const std::string& folder, const std::string& replaced) {
  const fs::file_status existing = fs::symlink_status(folder);
  if (fs::exists(existing)) {
    if (!fs::is_directory(existing)) {
      throw std::runtime_error(folder + ": is not a folder and would be replaced by a checkpoint: move it away");
    }
    if (read_candidate(folder).wrong.empty()) {
      remove_folder(replaced);
      rename_folder(folder, replaced);
    } else {
      remove_folder(folder);
    }
  }
  rename_folder(partial, folder);
  sync_directory(fs::path(folder).parent_path().string());
}

void remove_older(const std::string& output, int keep) {
  const std::vector<Candidate> candidates = candidates_in(output);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const bool complete = candidates[i].wrong.empty();
    const bool left_over = !complete && fs::path(candidates[i].folder).extension() == ".partial";
    if (left_over || (complete && i >= static_cast<std::size_t>(keep))) remove_folder(candidates[i].folder);
  }
}

std::int64_t size_of(const std::string& path) { return static_cast<std::int64_t>(MappedFile(path).bytes().size()); }

// A string of rank 0, on all ranks.
std::string told_by_first(Communicator& world, std::string text) {
  auto size = static_cast<std::int64_t>(text.size());
  world.broadcast_host(&size, sizeof size, 0);
  text.resize(static_cast<std::size_t>(size));
  if (size > 0) world.broadcast_host(text.data(), size, 0);
  return text;
}

// Rank 0 looks, since only one rank's view of a folder that may change is the same for all.
std::vector<Candidate> agreed_candidates(Communicator& world, const std::string& wanted, const std::string& output) {
  nlohmann::json list = nlohmann::json::array();
  if (world.rank() == 0) {
    const std::vector<Candidate> seen =
        wanted == "latest" ? candidates_in(output) : std::vector<Candidate>{read_candidate(wanted)};
    for (const Candidate& one : seen) {
      list.push_back(
          {{"folder", one.folder}, {"wrong", one.wrong}, {"manifest", one.wrong.empty() ? to_json(one.manifest) : ""}});
    }
  }
  std::vector<Candidate> candidates;
  for (const nlohmann::json& one : nlohmann::json::parse(told_by_first(world, list.dump()))) {
    Candidate candidate{.folder = one.at("folder"), .manifest = {}, .wrong = one.at("wrong")};
    if (candidate.wrong.empty()) candidate.manifest = manifest_from_json(one.at("manifest"));
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// What is wrong with the files of a checkpoint; empty if nothing. Collective.
std::string wrong_files(Communicator& world, const Candidate& candidate) {
  for (const char* needed : {kModel, kOptimizer}) {
    const auto& files = candidate.manifest.files;
    const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == needed; });
    if (found == files.end()) return std::string(kManifest) + " does not name " + needed;
    const std::string checksum = file_checksum(world, candidate.folder + "/" + needed, found->bytes);
    if (checksum.empty())
      return std::string(needed) + " is missing or has not " + std::to_string(found->bytes) + " bytes";
    if (checksum != found->checksum) {
      return std::string(needed) + " has the checksum " + checksum + ", its manifest says " + found->checksum;
    }
  }
  return "";
}

}  // namespace

std::string write_checkpoint(Trainer& trainer, Communicator& world, const std::string& output,
                             CheckpointManifest manifest, int keep) {
  const std::string folder = output + "/checkpoints/step-" + std::to_string(manifest.step);
  const std::string partial = folder + ".partial";
  const std::string replaced = folder + ".replaced";
  if (world.rank() == 0) {
    remove_folder(partial);
    std::error_code error;
    fs::create_directories(partial, error);
    if (error) throw std::runtime_error(partial + ": the folder cannot be made: " + error.message());
  }
  world.barrier();
  trainer.save(partial + "/" + kModel, Precision::fp32);
  trainer.save_moments(partial + "/" + kOptimizer);
  for (const char* name : {kModel, kOptimizer}) {
    const std::string path = partial + "/" + name;
    const std::int64_t bytes = size_of(path);
    manifest.files.push_back({name, bytes, file_checksum(world, path, bytes)});
    if (manifest.files.back().checksum.empty()) {
      throw std::runtime_error(path + ": cannot be read back by all ranks; do they share this folder?");
    }
  }
  manifest.parameter_hash = trainer.parameter_hash();
  manifest.written = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (world.rank() == 0) {
    take_place(partial, folder, replaced);
    write_manifest(folder, manifest);
    remove_folder(replaced);
    remove_older(output, keep);
  }
  world.barrier();
  return folder;
}

FoundCheckpoint find_checkpoint(Communicator& world, const std::string& wanted, const std::string& output) {
  FoundCheckpoint found;
  for (const Candidate& candidate : agreed_candidates(world, wanted, output)) {
    if (candidate.wrong.empty() && !found.folder.empty()) continue;  // older than the one that was found
    const std::string wrong = candidate.wrong.empty() ? wrong_files(world, candidate) : candidate.wrong;
    if (!wrong.empty()) {
      found.passed_over.push_back(candidate.folder + ": " + wrong);
    } else {
      found.folder = candidate.folder;
      found.manifest = candidate.manifest;
    }
  }
  return found;
}

void load_checkpoint(Trainer& trainer, const FoundCheckpoint& checkpoint) {
  trainer.load(ModelFile(checkpoint.folder + "/" + kModel));
  trainer.load_moments(OptimizerFile(checkpoint.folder + "/" + kOptimizer));
}

}  // namespace train_gpt

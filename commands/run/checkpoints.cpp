#include "commands/run/checkpoints.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "commands/run/folder_swap.h"
#include "commands/run/overwritten.h"
#include "commands/run/packed.h"
#include "commands/run/run_tokenizer.h"
#include "commands/run/told.h"
#include "model/range_file.h"
#include "pipeline/train/file_agreement.h"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kBeforeSpike = "before-spike";  // a file that marks a checkpoint to be kept

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

// "step-<digits>", with nothing before or after it, is a checkpoint of a run; "step-<digits>.<suffix>" with a suffix of
// ours is being written or removed. All other names are the user's, and are left alone.
bool is_step_name(std::string_view name, std::string_view suffix) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return false;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(suffix.size());
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

// The folders in DIR/checkpoints that a run made: those with a manifest first, sorted by progress, the furthest before
// all others.
std::vector<Candidate> candidates_in(const std::string& output) {
  std::vector<Candidate> candidates;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(output + "/checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = is_step_name(name, "") || is_step_name(name, kReplaced) || is_step_name(name, kPartial);
    if (!ours || !entry.is_directory(error)) continue;
    candidates.push_back(read_candidate(entry.path().string()));
    std::string& wrong = candidates.back().wrong;
    if (is_step_name(name, kPartial) && wrong.empty()) wrong = "it was being written";
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.wrong.empty() != b.wrong.empty()) return a.wrong.empty();
    const auto order = a.manifest.progress(b.manifest);
    return order != 0 ? order > 0 : a.folder > b.folder;
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

}  // namespace

void remove_left_overs(const std::string& output) {
  std::vector<std::string> left_over;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(output + "/checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    const std::string folder = entry.path().string();
    if (is_step_name(name, kPartial) || is_step_name(name, kRemoved)) left_over.push_back(folder);
    if (!is_step_name(name, kReplaced)) continue;
    const std::string replacing = folder.substr(0, folder.size() - std::string_view(kReplaced).size());
    if (read_candidate(replacing).wrong.empty()) left_over.push_back(folder);
  }
  for (const std::string& folder : left_over) remove_folder(folder);
}

namespace {

// Removes all checkpoints of this run but the newest `keep`; never `written`.
void remove_older(const std::string& output, const std::string& run, int keep, const std::string& written) {
  int counted = 0;
  for (const Candidate& candidate : candidates_in(output)) {
    if (!candidate.wrong.empty() || candidate.manifest.run != run) continue;
    if (fs::exists(candidate.folder + "/" + kBeforeSpike)) continue;
    if (++counted > keep && candidate.folder != written) remove_whole_folder(candidate.folder);
  }
}

// Only rank 0 looks and tells the others, since the folder may change meanwhile.
std::vector<Candidate> agreed_candidates(Communicator& world, const std::string& wanted, const std::string& output) {
  std::string seen;
  if (world.rank() == 0) {
    const bool any = wanted == "latest" || wanted == "auto";
    for (const Candidate& one : any ? candidates_in(output) : std::vector<Candidate>{read_candidate(wanted)}) {
      pack(seen, one.folder);
      pack(seen, one.wrong);
      pack(seen, one.wrong.empty() ? to_json(one.manifest) : "");
    }
  }
  const std::string told = told_by_first(world, std::move(seen));
  std::vector<Candidate> candidates;
  for (std::string_view rest = told; !rest.empty();) {
    Candidate candidate{.folder = unpack(rest), .manifest = {}, .wrong = {}};
    candidate.wrong = unpack(rest);
    const std::string manifest = unpack(rest);
    if (candidate.wrong.empty()) candidate.manifest = manifest_from_json(manifest);
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// Describes what is wrong with the files of a checkpoint; empty if nothing is. Collective.
std::string wrong_files(Communicator& world, const Candidate& candidate) {
  std::vector<std::string> names = {kModelName, kOptimizerName};
  for (int age = 1; age <= candidate.manifest.older_versions(); ++age) names.push_back(previous_name(age));
  if (candidate.manifest.corrects_delay()) names.emplace_back(kUpdateName);
  for (const std::string& needed : names) {
    const auto& files = candidate.manifest.files;
    const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == needed; });
    if (found == files.end()) return std::string(kManifest) + " does not name " + needed;
    const std::string checksum = file_checksum(world, candidate.folder + "/" + needed, found->bytes);
    if (checksum.empty()) return needed + " is missing or has not " + std::to_string(found->bytes) + " bytes";
    if (checksum != found->checksum) {
      return needed + " has the checksum " + checksum + ", its manifest says " + found->checksum;
    }
  }
  return "";
}

}  // namespace

std::string checkpoint_folder(const std::string& output, std::int64_t step) {
  return output + "/checkpoints/step-" + std::to_string(step);
}

Saving checkpoint_saving(const std::string& output, CheckpointManifest manifest, int keep,
                         const std::optional<Tokenizer>& tokenizer) {
  const std::string folder = checkpoint_folder(output, manifest.step);
  return {.folder = folder,
          .previous = manifest.older_versions(),
          .update = manifest.corrects_delay(),
          .seal =
              [=, &tokenizer](const std::string& partial, const std::vector<CheckpointManifest::File>& files) {
                CheckpointManifest sealed = manifest;
                sealed.files = files;
                const auto now = std::chrono::system_clock::now().time_since_epoch();
                sealed.written = std::chrono::duration<double>(now).count();
                keep_tokenizer(tokenizer, partial);
                write_manifest(partial, sealed);
              },
          .afterwards =
              [=, run = manifest.run] {
                remove_older(output, run, keep, folder);
                remove_overwritten(output);
              },
          .told = "checkpoint written to " + folder};
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
  trainer.load(ModelFile(checkpoint.folder + "/" + kModelName));
  trainer.load_moments(OptimizerFile(checkpoint.folder + "/" + kOptimizerName));
  for (int age = 1; age <= checkpoint.manifest.older_versions(); ++age) {
    trainer.load_previous(ModelFile(checkpoint.folder + "/" + previous_name(age)), age);
  }
  if (checkpoint.manifest.corrects_delay()) trainer.load_update(ModelFile(checkpoint.folder + "/" + kUpdateName));
}

std::string newest_checkpoint(const std::string& output) {
  const std::vector<Candidate> candidates = candidates_in(output);
  return candidates.empty() || !candidates.front().wrong.empty() ? "" : candidates.front().folder;
}

void keep_before_spike(const std::string& output) {
  const std::string newest = newest_checkpoint(output);
  std::error_code ignored;
  if (newest.empty() || fs::exists(newest + "/" + kBeforeSpike, ignored)) return;
  for (const Candidate& candidate : candidates_in(output)) fs::remove(candidate.folder + "/" + kBeforeSpike, ignored);
  std::ofstream(newest + "/" + kBeforeSpike) << "the last checkpoint before a sudden rise of loss or norm\n";
}

bool has_checkpoints(const std::string& output) { return !candidates_in(output).empty(); }

std::vector<std::string> own_checkpoints(const std::string& output) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates_in(output)) {
    if (candidate.wrong.empty()) names.push_back(fs::path(candidate.folder).filename().string());
  }
  return names;
}

std::vector<std::string> set_aside_after(const std::string& output, std::int64_t step) {
  std::vector<std::string> notes;
  for (const Candidate& candidate : candidates_in(output)) {
    if (!candidate.wrong.empty() || candidate.manifest.step <= step) continue;
    const std::string aside = candidate.folder + ".set-aside";
    remove_folder(aside);
    rename_folder(candidate.folder, aside);
    notes.push_back(candidate.folder + " is further on than where the run goes on: renamed to " + aside);
  }
  return notes;
}

}  // namespace train_gpt

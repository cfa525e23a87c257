// The manifest of a checkpoint: the run's settings, its progress, and size and checksum of each file. It is written
// last, so a folder with a manifest is a complete checkpoint. It carries a checksum of itself, so a manifest that can
// be read is the one that was written.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "commands/cli/options.h"
#include "commands/run/file_identity.h"
#include "model/config.h"
#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

struct CheckpointManifest {
  struct File {
    std::string name;
    std::int64_t bytes = 0;
    std::string checksum;  // pipeline/train/file_agreement.h
  };

  std::int64_t step = 0;       // steps taken; the run goes on with this one (they count from 0)
  std::int64_t counter = 0;    // checkpoints that the run had written before this one, in all its processes
  std::string run;             // id of the run that wrote it (run_folder.h); empty: an older program without ids
  std::optional<double> loss;  // of the last step taken, for the end event of a run without steps left
  double written = 0;          // seconds since 1970, for people alone, since clocks may be set back
  // The arithmetic, on which the bits of sums depend besides the settings below; empty: not recorded.
  std::string arithmetic;
  ModelConfig model;
  // The settings that determine the sample order (data/sample_order.h), by the names of the options.
  std::map<std::string, std::int64_t> order;
  std::vector<FileIdentity> data;  // the token files, in the order of their windows; empty: not recorded
  // Other settings on which a run's results depend; a resumed run may change them, and says so.
  std::map<std::string, std::string> training;
  std::string parameter_hash;  // of the parameters in memory when it was written
  std::vector<File> files;

  // The run's schedule if it never flushes, and so has several sets of parameters; empty: a schedule that flushes.
  std::string versions() const;
  // Of pipedream, whose numbers depend on it: the units of each rank; else empty.
  Partition stages() const;
  void set_stages(const Partition& units);
  int older_versions() const;   // of the parameters, that are in files beside the newest
  bool corrects_delay() const;  // --delay-correction error-feedback
  // Compares by progress, not by time: the greater one is further on.
  std::strong_ordering progress(const CheckpointManifest& other) const {
    return step != other.step ? step <=> other.step : counter <=> other.counter;
  }
};

// The manifest of a run with these options, without step, counter, run, time, hash and files. windows: of the training
// data; data: its files; arithmetic: of the device.
CheckpointManifest manifest_of_run(const Options& options, const ModelConfig& model, const BatchShape& batch,
                                   std::int64_t windows, std::vector<FileIdentity> data, std::string arithmetic);

std::string to_json(const CheckpointManifest& manifest);
// Reads version 2, and version 1, which had neither checksum nor counter. Throws std::invalid_argument naming what is
// wrong.
CheckpointManifest manifest_from_json(const std::string& text);

// Throws std::invalid_argument naming the first setting of `now` that contradicts the checkpoint: sizes of the model,
// token files, the sample order, a total of `steps` that is already exceeded, or a finished learning-rate curve that
// would be stretched.
void require_same_run(const CheckpointManifest& saved, const CheckpointManifest& now, std::int64_t steps,
                      const std::string& checkpoint);
// One line for every setting that may change and did.
std::vector<std::string> changed_settings(const CheckpointManifest& saved, const CheckpointManifest& now);

}  // namespace train_gpt

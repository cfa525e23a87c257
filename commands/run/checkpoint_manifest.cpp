#include "commands/run/checkpoint_manifest.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "model/file_checksum.h"
#include "model/optimizer.h"
#include "pipeline/schedule/flushless.h"

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "train_gpt checkpoint";
constexpr int kVersion = 2;
// The last member of the text; it is the checksum of everything before it.
constexpr const char* kChecksumMember = "\n  \"checksum\": \"";

std::string exact(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  // The shortest form that gives the same value reads better: 0.1, not 0.10000000000000001.
  for (int digits = 1; digits < 17; ++digits) {
    std::array<char, 32> shorter{};
    std::snprintf(shorter.data(), shorter.size(), "%.*g", digits, value);
    if (std::stod(shorter.data()) == value) return shorter.data();
  }
  return text.data();
}

const char* name_of(LearningRateShape shape) {
  static constexpr std::array<const char*, 4> kNames = {"constant", "cosine", "linear", "wsd"};
  return kNames[static_cast<std::size_t>(shape)];
}

std::map<std::string, std::int64_t> sizes_of(const ModelConfig& model) {
  return {{"layers", model.layers},
          {"heads", model.heads},
          {"hidden", model.hidden},
          {"vocab", model.vocab},
          {"max-seq-len", model.max_seq_len}};
}

std::string checksum_of(std::string_view text) {
  const std::uint64_t hash = hash_bytes(std::as_bytes(std::span(text)));
  return combined_hash({&hash, 1});
}

// Throws unless the text has the checksum that it names. False: it names none.
bool verified(const std::string& text) {
  const std::size_t at = text.rfind(kChecksumMember);
  if (at == std::string::npos) return false;
  const std::string named = text.substr(at + std::string_view(kChecksumMember).size(), 16);
  if (const std::string found = checksum_of(std::string_view(text).substr(0, at)); found != named) {
    throw std::invalid_argument("it is damaged or was edited: its text has the checksum " + found +
                                ", another than it names");
  }
  return true;
}

// Keys of CheckpointManifest::training.
constexpr const char* kVersions = "parameters of schedule";
constexpr const char* kStages = "units of ranks";
constexpr const char* kCorrection = "delay-correction";

}  // namespace

CheckpointManifest manifest_of_run(const Options& options, const ModelConfig& model, const BatchShape& batch,
                                   std::int64_t windows, std::vector<FileIdentity> data, std::string arithmetic) {
  CheckpointManifest manifest;
  manifest.data = std::move(data);
  manifest.arithmetic = std::move(arithmetic);
  manifest.model = model;
  manifest.order = {{"seq-len", batch.seq_len},
                    {"rows per step", batch.step_rows()},
                    {"seed", static_cast<std::int64_t>(options.data.seed)},
                    {"shuffle", options.data.shuffle ? 1 : 0},
                    {"windows of the training data", windows}};
  const OptimizerOptions& optimizer = options.optimizer;
  manifest.training = {{"learning-rate", exact(optimizer.learning_rate)},
                       {"lr-schedule", name_of(optimizer.lr_schedule)},
                       {"warmup-steps", std::to_string(optimizer.warmup_steps)},
                       {"min-lr-fraction", exact(optimizer.min_lr_fraction)},
                       {"weight-decay", exact(optimizer.weight_decay)},
                       {"beta1", exact(optimizer.beta1)},
                       {"beta2", exact(optimizer.beta2)},
                       {"eps", exact(optimizer.eps)},
                       {"grad-clip", exact(optimizer.grad_clip)},
                       {"optimizer", to_string(optimizer.optimizer)},
                       {"steps", std::to_string(options.run.steps)},
                       // With rows per step and groups it determines the order of all sums.
                       {"micro-batch-size", std::to_string(batch.rows)},
                       {"groups of micro-batches", order_of_sums(batch)}};
  if (optimizer.optimizer == OptimizerKind::muon) manifest.training["muon-scale"] = to_string(optimizer.muon_scale);
  const std::string schedule = options.pipeline.schedule_file.empty() ? options.pipeline.schedule() : "";
  if (is_flushless(schedule)) manifest.training[kVersions] = schedule;
  if (optimizer.delay_correction) manifest.training[kCorrection] = "error-feedback";
  return manifest;
}

std::string CheckpointManifest::versions() const {
  const auto found = training.find(kVersions);
  return found == training.end() ? "" : found->second;
}

Partition CheckpointManifest::stages() const {
  const auto found = training.find(kStages);
  Partition units;
  if (found == training.end()) return units;
  std::istringstream text(found->second);
  for (std::string one; std::getline(text, one, ',');) units.push_back(std::atoi(one.c_str()));
  return units;
}

void CheckpointManifest::set_stages(const Partition& units) {
  std::string text;
  for (const int one : units) text += (text.empty() ? "" : ",") + std::to_string(one);
  training[kStages] = text;
}

int CheckpointManifest::older_versions() const {
  const std::string schedule = versions();
  if (schedule.empty()) return 0;
  return stashes_weights(schedule) ? static_cast<int>(stages().size()) - 1 : 1;
}

bool CheckpointManifest::corrects_delay() const { return training.contains(kCorrection); }

std::string to_json(const CheckpointManifest& manifest) {
  Json files = Json::array();
  for (const CheckpointManifest::File& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  }
  Json data = Json::array();
  for (const FileIdentity& file : manifest.data) {
    data.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  }
  Json model = sizes_of(manifest.model);
  model["tied"] = manifest.model.tied;
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"step", manifest.step},
               {"counter", manifest.counter},
               {"run", manifest.run},
               {"loss", manifest.loss ? Json(*manifest.loss) : Json(nullptr)},
               {"written", manifest.written},
               {"arithmetic", manifest.arithmetic},
               {"model", model},
               {"order", manifest.order},
               {"data", data},
               {"training", manifest.training},
               {"parameter_hash", manifest.parameter_hash},
               {"files", files},
               {"checksum", std::string(16, '0')}};
  // File names may hold bytes that are not UTF-8, JSON may not.
  std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::size_t at = text.rfind(kChecksumMember);
  const std::string checksum = checksum_of(std::string_view(text).substr(0, at));
  return text.replace(at + std::string_view(kChecksumMember).size(), checksum.size(), checksum);
}

namespace {

std::int64_t count_in(const Json& json, const char* name) {
  const Json& value = json.at(name);
  if (!value.is_number_integer() || value < 0 || value > INT64_MAX) {
    throw std::invalid_argument(std::string("it is damaged: \"") + name + "\" is " + value.dump());
  }
  return value.get<std::int64_t>();
}

CheckpointManifest parsed(const Json& json, bool has_checksum) {
  if (json.at("format") != kFormat) throw std::invalid_argument("it is not the manifest of a checkpoint");
  const std::int64_t version = count_in(json, "version");
  if (version < 1 || version > kVersion) {
    throw std::invalid_argument("it has version " + std::to_string(version) + ", known are 1 to " +
                                std::to_string(kVersion));
  }
  if (has_checksum != (version > 1)) throw std::invalid_argument("it is damaged: its version and checksum disagree");
  CheckpointManifest manifest;
  manifest.step = count_in(json, "step");
  json.at("written").get_to(manifest.written);
  if (version > 1) {
    manifest.counter = count_in(json, "counter");
    json.at("run").get_to(manifest.run);
    if (const Json& loss = json.at("loss"); !loss.is_null()) manifest.loss = loss.get<double>();
    json.at("arithmetic").get_to(manifest.arithmetic);
    for (const Json& file : json.at("data")) {
      manifest.data.push_back({file.at("name"), count_in(file, "bytes"), file.at("checksum")});
    }
  }
  const Json& model = json.at("model");
  manifest.model.layers = count_in(model, "layers");
  manifest.model.heads = count_in(model, "heads");
  manifest.model.hidden = count_in(model, "hidden");
  manifest.model.vocab = count_in(model, "vocab");
  manifest.model.max_seq_len = count_in(model, "max-seq-len");
  model.at("tied").get_to(manifest.model.tied);
  json.at("order").get_to(manifest.order);
  json.at("training").get_to(manifest.training);
  json.at("parameter_hash").get_to(manifest.parameter_hash);
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({file.at("name"), count_in(file, "bytes"), file.at("checksum")});
  }
  return manifest;
}

}  // namespace

CheckpointManifest manifest_from_json(const std::string& text) {
  const bool has_checksum = verified(text);
  // The message quotes nothing of the text, which may hold bytes not fit for a terminal.
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw std::invalid_argument("it is damaged: it is no JSON");
  try {
    return parsed(json, has_checksum);
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("it is damaged: a member is missing or of another type");
  }
}

namespace {

// "true" and "false" are stored as 1 and 0.
std::string shown(const std::string& name, std::int64_t value) {
  if (name == "shuffle" || name == "tied") return value != 0 ? "true" : "false";
  return std::to_string(value);
}

void require_equal(const std::map<std::string, std::int64_t>& saved, const std::map<std::string, std::int64_t>& now,
                   const std::string& checkpoint, const std::string& remedy) {
  for (const auto& [name, value] : now) {
    const auto found = saved.find(name);
    if (found != saved.end() && found->second == value) continue;
    const bool is_option = name.find(' ') == std::string::npos;
    throw std::invalid_argument("--resume " + checkpoint + ": " + (is_option ? "--" : "") + name + " is " +
                                shown(name, value) + ", but the checkpoint has " +
                                (found == saved.end() ? "none" : shown(name, found->second)) + "; " + remedy);
  }
}

}  // namespace

namespace {

void require_same_data(const CheckpointManifest& saved, const CheckpointManifest& now, const std::string& checkpoint) {
  if (saved.data.empty() || saved.data == now.data) return;
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument("--resume " + checkpoint + ": " + what +
                                ". Resume with the files that the run began with, or begin a new run from the "
                                "checkpoint's model.bin with --init");
  };
  const auto differing = std::mismatch(saved.data.begin(), saved.data.end(), now.data.begin(), now.data.end());
  if (differing.first == saved.data.end() || differing.second == now.data.end()) {
    refuse("--train-data names " + std::to_string(now.data.size()) + " token files, but the checkpoint has " +
           std::to_string(saved.data.size()));
  }
  const auto told = [](const FileIdentity& file) {
    return file.name + " (" + std::to_string(file.bytes) + " bytes, checksum " + file.checksum + ")";
  };
  refuse("token file " + std::to_string(differing.first - saved.data.begin() + 1) + " of --train-data is " +
         told(*differing.second) + ", but the checkpoint has " + told(*differing.first));
}

// One optimizer cannot start from another's state. Older manifests, from before there was a choice, name none.
void require_same_optimizer(const CheckpointManifest& saved, const CheckpointManifest& now,
                            const std::string& checkpoint) {
  const auto of = [](const CheckpointManifest& manifest) {
    const auto found = manifest.training.find("optimizer");
    return found == manifest.training.end() ? std::string("adamw") : found->second;
  };
  if (of(saved) == of(now)) return;
  throw std::invalid_argument("--resume " + checkpoint + ": --optimizer is " + of(now) + ", but the checkpoint has " +
                              of(saved) + ". Resume with the same, or begin a new run from the checkpoint's " +
                              "model.bin with --init");
}

// A run without a flush has two sets of parameters, and other results.
void require_same_versions(const CheckpointManifest& saved, const CheckpointManifest& now,
                           const std::string& checkpoint) {
  if (saved.corrects_delay() != now.corrects_delay()) {
    throw std::invalid_argument(
        "--resume " + checkpoint + ": --delay-correction is " + (now.corrects_delay() ? "error-feedback" : "none") +
        ", but the checkpoint has " + (saved.corrects_delay() ? "error-feedback" : "none") +
        ". Resume with the same, or begin a new run from the checkpoint's model.bin with --init");
  }
  const std::string was = saved.versions(), is = now.versions();
  if (was == is) return;
  const auto told = [](const std::string& name) { return name.empty() ? "a schedule that flushes" : name; };
  throw std::invalid_argument("--resume " + checkpoint + ": the schedule is " + (is.empty() ? "one that flushes" : is) +
                              ", but the checkpoint is of " + told(was) +
                              ", which computes with other parameters. Resume with the same, or begin a new run from "
                              "the checkpoint's model.bin with --init");
}

// Under a longer curve the rate of a finished one would jump back.
void require_same_curve(const CheckpointManifest& saved, const CheckpointManifest& now, std::int64_t steps,
                        const std::string& checkpoint) {
  const auto shape = now.training.find("lr-schedule");
  const auto total = saved.training.find("steps");
  if (shape == now.training.end() || shape->second == "constant" || total == saved.training.end()) return;
  if (total->second != std::to_string(saved.step) || steps <= saved.step) return;
  throw std::invalid_argument(
      "--resume " + checkpoint + ": the run is finished, its learning rate has come to the end of the " +
      shape->second + " curve over " + total->second + " steps. --steps " + std::to_string(steps) +
      " would make it jump to the middle of another curve. Begin a new run from the checkpoint's "
      "model.bin with --init, or go on with --lr-schedule constant");
}

}  // namespace

void require_same_run(const CheckpointManifest& saved, const CheckpointManifest& now, std::int64_t steps,
                      const std::string& checkpoint) {
  auto saved_sizes = sizes_of(saved.model);
  auto sizes = sizes_of(now.model);
  saved_sizes["tied"] = saved.model.tied ? 1 : 0;
  sizes["tied"] = now.model.tied ? 1 : 0;
  require_equal(saved_sizes, sizes, checkpoint, "resume with the sizes that the run began with");
  require_equal(saved.order, now.order, checkpoint,
                "this would change the order of the samples. Resume with the same, or begin a new run from the "
                "checkpoint's model.bin with --init");
  require_same_data(saved, now, checkpoint);
  require_same_optimizer(saved, now, checkpoint);
  require_same_versions(saved, now, checkpoint);
  if (saved.step > steps) {
    throw std::invalid_argument("--resume " + checkpoint + ": the checkpoint was written after " +
                                std::to_string(saved.step) + " steps, more than --steps " + std::to_string(steps) +
                                " (the total); raise it, or resume an earlier checkpoint");
  }
  require_same_curve(saved, now, steps, checkpoint);
}

std::vector<std::string> changed_settings(const CheckpointManifest& saved, const CheckpointManifest& now) {
  std::vector<std::string> lines;
  if (!saved.arithmetic.empty() && saved.arithmetic != now.arithmetic) {
    lines.push_back("the arithmetic was " + saved.arithmetic + " when the checkpoint was written and is " +
                    now.arithmetic + " now: the last bits of sums may differ from those of a run without a break");
  }
  for (const auto& [name, value] : now.training) {
    const auto found = saved.training.find(name);
    if (found == saved.training.end() || found->second == value) continue;
    // A constant rate does not depend on the total.
    if (name == "steps" && now.training.at("lr-schedule") == "constant") continue;
    const bool is_option = name.find(' ') == std::string::npos;
    lines.push_back((is_option ? "--" : "") + name + " was " + found->second +
                    " when the checkpoint was written and is " + value +
                    " now: the run will differ from one without a break");
  }
  return lines;
}

}  // namespace train_gpt

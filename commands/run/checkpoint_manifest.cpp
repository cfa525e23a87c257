#include "commands/run/checkpoint_manifest.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "train_gpt checkpoint";
constexpr int kVersion = 1;

std::string exact(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  // The shortest form that gives the value back reads better: 0.1, not 0.10000000000000001.
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

}  // namespace

CheckpointManifest manifest_of_run(const Options& options, const ModelConfig& model, const BatchShape& batch,
                                   std::int64_t windows) {
  CheckpointManifest manifest;
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
                       {"steps", std::to_string(options.run.steps)},
                       // d replicas are d groups of the sum
                       {"groups of micro-batches", std::to_string(batch.groups * batch.replicas)}};
  return manifest;
}

std::string to_json(const CheckpointManifest& manifest) {
  Json files = Json::array();
  for (const CheckpointManifest::File& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  }
  Json model = sizes_of(manifest.model);
  model["tied"] = manifest.model.tied;
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"step", manifest.step},
                     {"written", manifest.written},
                     {"model", model},
                     {"order", manifest.order},
                     {"training", manifest.training},
                     {"parameter_hash", manifest.parameter_hash},
                     {"files", files}};
  return json.dump(2) + "\n";
}

CheckpointManifest manifest_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat) throw std::invalid_argument("it is not the manifest of a checkpoint");
    if (json.at("version") != kVersion) {
      throw std::invalid_argument("it has version " + json.at("version").dump() + ", known is " +
                                  std::to_string(kVersion));
    }
    CheckpointManifest manifest;
    json.at("step").get_to(manifest.step);
    json.at("written").get_to(manifest.written);
    const Json& model = json.at("model");
    model.at("layers").get_to(manifest.model.layers);
    model.at("heads").get_to(manifest.model.heads);
    model.at("hidden").get_to(manifest.model.hidden);
    model.at("vocab").get_to(manifest.model.vocab);
    model.at("max-seq-len").get_to(manifest.model.max_seq_len);
    model.at("tied").get_to(manifest.model.tied);
    json.at("order").get_to(manifest.order);
    json.at("training").get_to(manifest.training);
    json.at("parameter_hash").get_to(manifest.parameter_hash);
    for (const Json& file : json.at("files")) {
      manifest.files.push_back({file.at("name"), file.at("bytes"), file.at("checksum")});
    }
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(std::string("it is damaged: ") + error.what());
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
  if (saved.step >= steps) {
    throw std::invalid_argument("--resume " + checkpoint + ": the checkpoint was written after " +
                                std::to_string(saved.step) + " steps, so --steps " + std::to_string(steps) +
                                " (the total) leaves nothing to do; raise it");
  }
}

std::vector<std::string> changed_settings(const CheckpointManifest& saved, const CheckpointManifest& now) {
  std::vector<std::string> lines;
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

// --help's headings Pipeline, Device and Cost.
#include "commands/cli/options_groups.h"

#include <algorithm>

#include "commands/cli/other_names.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/flushless.h"

namespace train_gpt {
namespace {

using Value = OptionValue;

constexpr double kLeastBandwidth = 1e-9;  // GB/s: one byte per second
constexpr int kLargestChunks = 1 << 10;   // so that p * v is an int

std::string schedule_help() {
  std::string names;
  for (const std::string& name : schedule_names()) names += name + ", ";
  names += "or auto: search for the best; never flushing: ";
  for (const std::string& name : flushless_names()) names += (name == flushless_names().front() ? "" : ", ") + name;
  return names;
}

const char* pipelined_schedule_help() {
  static const std::string text = schedule_help();
  return text.c_str();
}

const char* simulated_schedule_help() {
  static const std::string text = schedule_help() + "; all: those that flush";
  return text.c_str();
}

void set_schedules(Options& o, const Value& v) {
  std::vector<std::string> known = schedule_names();
  known.emplace_back("auto");
  const bool several = o.command == Command::simulate;
  PipelineOptions& pipeline = o.pipeline;
  pipeline.schedules = v.words();
  for (std::string& name : pipeline.schedules) name = canonical_schedule(name);
  const bool all = pipeline.schedules == std::vector<std::string>{"all"};
  pipeline.all_schedules = several && all;
  if (pipeline.all_schedules) pipeline.schedules = schedule_names();
  if (!several && (pipeline.schedules.size() > 1 || all)) {
    v.refuse("names several schedules; only simulate takes a list");
  }
  known.insert(known.end(), flushless_names().begin(), flushless_names().end());
  if (several) known.emplace_back("all");
  for (const std::string& name : pipeline.schedules) {
    if (name == "all") v.refuse("mixes all with names; give all alone");
    if (std::find(known.begin(), known.end(), name) == known.end()) v.refuse_unknown(name, known);
  }
}

bool is_list(const Value& v) {
  return !v.raw().empty() && v.raw().find_first_not_of("0123456789,-") == std::string::npos;
}

void set_partition(Options& o, const Value& v) {
  PartitionOption& partition = o.pipeline.partition;
  const std::string name = renamed(v.raw(), {});
  if (name == "measured") {
    partition.kind = PartitionOption::Kind::measured;
  } else if (name == "uniform") {
    partition.kind = PartitionOption::Kind::uniform;
  } else if (is_list(v)) {
    partition = {PartitionOption::Kind::list, v.integers(1)};
  } else {
    v.refuse("is not known; give measured, uniform or a list of units per virtual stage such as 5,4,4,5");
  }
}

void set_recompute(Options& o, const Value& v) {
  RecomputeOption& recompute = o.pipeline.recompute;
  const std::string name = renamed(v.raw(), {});
  if (name == "none") {
    recompute.kind = RecomputeOption::Kind::none;
  } else if (name == "auto") {
    recompute.kind = RecomputeOption::Kind::automatic;
  } else if (is_list(v)) {
    recompute = {RecomputeOption::Kind::list, v.integers(0)};
  } else {
    v.refuse("is not known; give none, auto or a list of units per virtual stage such as 2,1,0,0");
  }
}

void set_chunks(Options& o, const Value& v) {
  const std::vector<int> chunks = v.integers(1);
  for (const int value : chunks)
    if (value > kLargestChunks) v.refuse("is out of range; give 1 to " + std::to_string(kLargestChunks));
  o.pipeline.chunks = chunks.size() == 1 ? chunks.front() : 0;
  o.pipeline.auto_chunks = chunks;
}

void set_memory_limits(Options& o, const Value& v) {
  std::vector<std::int64_t> limits;
  for (const std::string& one : v.words()) limits.push_back(Value("--memory-limit", one).bytes());
  o.pipeline.memory_limit = *std::min_element(limits.begin(), limits.end());
  if (limits.size() > 1) o.pipeline.memory_limits = std::move(limits);
}

std::vector<double>& cost(Options& o, std::vector<double> Costs::*which) {
  o.costs.given = true;
  return o.costs.costs.*which;
}

// Links of a rank inside a host, or between hosts.
LinkCost& link(Options& o, LinkCost Cluster::*which) {
  o.costs.cluster_given = true;
  return o.costs.cluster.*which;
}

}  // namespace

std::vector<OptionSpec> pipeline_options() {
  return {
      {"schedule", "NAME", "1f1b", kPipelined, pipelined_schedule_help(), set_schedules},
      {"schedule", "NAME,...|all", "1f1b", kSimulate, simulated_schedule_help(), set_schedules},
      {"chunks", "v|LIST", nullptr, kPipelined | kSimulate,
       "virtual stages per rank; LIST: the numbers that --schedule auto tries (default 1,2,3,4; 2 includes the V)",
       set_chunks},
      {"group-size", "g", nullptr, kPipelined | kSimulate,
       "micro-batches per group of interleaved and interleaved-zb; by default the smallest legal one",
       [](Options& o, const Value& v) { o.pipeline.group_size = v.integer<int>(1, kLargestCount); }},
      {"warmup-factor", "w", "1", kPipelined | kSimulate,
       "for 2bw: w forwards ahead for each rank that follows; 2 if messages are slow",
       [](Options& o, const Value& v) { o.pipeline.warmup_factor = v.integer<int>(1, 2); }},
      {"ranks", "N", nullptr, kPlan,
       "search for the best layouts of so many ranks: replicas, pipeline, schedule, ZeRO, micro-batches; --stages, "
       "--data-parallel and so on are held if they are given",
       [](Options& o, const Value& v) { o.layouts.ranks = v.integer<int>(1, kLargestCount); }},
      {"flops-per-second", "X", nullptr, kPlan,
       "of a rank, such as 150e12: what --ranks takes the times of units from, if there is no --profile; what is "
       "reached, not a peak",
       [](Options& o, const Value& v) { o.layouts.flops_per_second = v.positive_number(); }},
      {"search-seconds", "X", nullptr, kSimulate | kPlan,
       "end the search of --schedule auto after this time, with the best schedule so far",
       [](Options& o, const Value& v) { o.pipeline.search_seconds = v.seconds(0.001, kLargestCost); }},
      {"schedule-file", "CSV", nullptr, kPipelined | kSimulate, "a schedule in PyTorch's form, instead of --schedule",
       [](Options& o, const Value& v) { o.pipeline.schedule_file = v.text(); }},
      {"partition", "measured|uniform|LIST", "measured", kPipelined,
       "how to cut the model into stages; LIST: units per virtual stage such as 5,4,4,5", set_partition},
      {"profile", "FILE", nullptr, kPipelined | kProfile,
       "measured costs: `train_gpt profile` writes them, other commands read them instead of measuring",
       [](Options& o, const Value& v) { o.pipeline.profile = v.text(); }},
      {"recompute", "none|auto|LIST", "none", kTrain | kPlan,
       "recompute activations instead of keeping them; LIST: units per virtual stage; auto: as few as the memory needs",
       set_recompute},
      {"verify", nullptr, nullptr, kWhatIf, "run each row on the timed device, and show the time that it takes there",
       [](Options& o, const Value&) { o.verify = true; }},
      {"memory-limit", "BYTES", nullptr, kTrain | kEvaluate | kWhatIf,
       "per rank, such as 80GB or 512MiB; without it the device's memory",
       [](Options& o, const Value& v) { o.pipeline.memory_limit = v.bytes(); }},
      {"memory-limit", "BYTES|LIST", nullptr, kPlan,
       "per rank, such as 80GB or 512MiB; LIST: one for each rank of a pipeline", set_memory_limits}};
}

std::vector<OptionSpec> device_options() {
  return {{"device", "auto|cpu|cuda|timed", "auto", kPipelined,
           "timed: actions compute nothing and take the time of their costs",
           [](Options& o, const Value& v) {
             o.device.device = v.choice<DeviceKind>({{"auto", DeviceKind::automatic},
                                                     {"cpu", DeviceKind::cpu},
                                                     {"cuda", DeviceKind::cuda},
                                                     {"timed", DeviceKind::timed}});
           }},
          {"device", "auto|cpu|cuda", "auto", kProfile | kGenerate, "auto: cuda if there is a GPU, else cpu",
           [](Options& o, const Value& v) {
             o.device.device = v.choice<DeviceKind>(
                 {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}});
           }},
          {"precision", "fp32|bf16", nullptr, kComputing | kSimulate,
           "precision of activations; without it bf16 on cuda and fp32 elsewhere", [](Options& o, const Value& v) {
             const OptionValue ours("--precision",
                                    renamed(v.raw(), {{"float32", "fp32"}, {"float", "fp32"}, {"bfloat16", "bf16"}}));
             o.device.precision = ours.choice<Precision>({{"fp32", Precision::fp32}, {"bf16", Precision::bf16}});
           }}};
}

std::vector<OptionSpec> cluster_options() {
  constexpr CommandSet commands = kSimulate | kPlan | kTrain;
  return {{"ranks-per-host", "K", nullptr, commands,
           "ranks of a host, as the launcher numbers them; without it all are on one host",
           [](Options& o, const Value& v) {
             o.costs.cluster_given = true;
             o.costs.cluster.ranks_per_host = v.integer<int>(1, kLargestCount);
           }},
          {"link-inside", "GB/s", nullptr, commands,
           "of one direction of a rank's link inside a host, for messages and for what replicas exchange; without it "
           "infinite",
           [](Options& o, const Value& v) {
             link(o, &Cluster::inside).bandwidth = v.gigabytes_per_second(kLeastBandwidth, kLargestCost);
           }},
          {"link-between", "GB/s", nullptr, commands, "likewise between hosts: a rank's part of its host's network",
           [](Options& o, const Value& v) {
             link(o, &Cluster::between).bandwidth = v.gigabytes_per_second(kLeastBandwidth, kLargestCost);
           }},
          {"latency-inside", "MS", "0", commands, "of one message inside a host",
           [](Options& o, const Value& v) { link(o, &Cluster::inside).latency = v.milliseconds(0, kLargestCost); }},
          {"latency-between", "MS", "0", commands, "of one message between hosts",
           [](Options& o, const Value& v) { link(o, &Cluster::between).latency = v.milliseconds(0, kLargestCost); }}};
}

std::vector<OptionSpec> cost_options() {
  constexpr CommandSet commands = kSimulate | kPlan | kTrain | kEvaluate;
  return {
      {"stages", "p", nullptr, commands, "ranks of one pipeline",
       [](Options& o, const Value& v) { o.costs.stages = v.integer<int>(1, kLargestCount); }},
      {"cost-forward", "LIST", "1", commands,
       "ms of F of one micro-batch through one rank's share. LIST: one value, p values per rank, or p*v per virtual "
       "stage",
       [](Options& o, const Value& v) { cost(o, &Costs::forward) = v.milliseconds_list(0, kLargestCost); }},
      {"cost-input", "LIST", "1", commands, "ms of I, the backward with respect to the input",
       [](Options& o, const Value& v) { cost(o, &Costs::input) = v.milliseconds_list(0, kLargestCost); }},
      {"cost-weight", "LIST", "1", commands, "ms of W, the backward with respect to the weights",
       [](Options& o, const Value& v) { cost(o, &Costs::weight) = v.milliseconds_list(0, kLargestCost); }},
      {"cost-comm", "LINKS", "0", commands,
       "ms of latency of one hop, never divided. LINKS: one value; or one per link r to r+1 (the last one, back to "
       "rank "
       "0, may be left out if unused); or all upwards, then all downwards",
       [](Options& o, const Value& v) { cost(o, &Costs::latency) = v.milliseconds_list(0, kLargestCost); }},
      {"cost-bandwidth", "LINKS", nullptr, commands, "GB/s of one direction of a link; without it infinite",
       [](Options& o, const Value& v) {
         cost(o, &Costs::bandwidth) = v.gigabytes_per_second_list(kLeastBandwidth, kLargestCost);
       }},
      {"cost-send", "X", "0", commands, "while a rank sends, its actions take 1 + X times as long",
       [](Options& o, const Value& v) {
         o.costs.given = true;
         o.costs.costs.send_slowdown = v.number(0, kLargestCost);
       }},
      {"cost-reduction", "MS", nullptr, kSimulate | kTrain,
       "ms of reducing a rank's gradients over replicas; each of its stages takes 1/v of it, after its last W",
       [](Options& o, const Value& v) { o.costs.reduction = v.milliseconds(0, kLargestCost); }},
      {"cost-fused", "LIST", nullptr, commands, "ms of a fused F&B pair; without it one after the other",
       [](Options& o, const Value& v) { cost(o, &Costs::fused) = v.milliseconds_list(0, kLargestCost); }}};
}

}  // namespace train_gpt

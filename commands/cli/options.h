// The command line as plain data: which command, and every option in the groups in which --help shows them.
//
// Each option has a default here and nowhere else. When a command sees these structs, every number is complete and in
// range, every name of a closed set is known, each option belongs to the command, and no two options contradict each
// other. The command checks whatever depends on a model, a file or the number of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "model/optimizer.h"
#include "pipeline/schedule/rank_order.h"
#include "pipeline/simulate/cluster.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// The file for which `make demo` prepares tokens from the project's own sources.
inline constexpr const char* kDemoTrainData = "out/demo/train.bin";

// The run in out/ that began last (commands/run/run_folder.h): the default folder of commands that look at a run.
inline constexpr const char* kLatestRun = "out/latest";

// --max-seq-len if neither it nor a model file is given.
inline constexpr std::int64_t kDefaultMaxSeqLen = 1024;

enum class Command : std::uint8_t {
  train,
  evaluate,
  simulate,
  plan,
  profile,
  prepare,
  convert,
  generate,
  status,
  checkpoint,
  report,
  whatif
};

struct DataOptions {
  std::string train_data = kDemoTrainData;  // glob
  std::string val_data;                     // glob; empty: no validation
  std::string multiple_choice;              // JSONL; empty: none
  std::string folder;                       // --data, which holds training and validation data
  bool shuffle = true;
  std::uint64_t seed = 1;  // of sample order, initial parameters and sampling

  bool operator==(const DataOptions&) const = default;
};

struct ModelOptions {
  std::string preset = "d6";                // --model, unless all three sizes are given
  std::optional<std::int64_t> layers;       // all three or none
  std::optional<std::int64_t> heads;        //
  std::optional<std::int64_t> hidden;       //
  bool tied = true;                         //
  std::optional<std::int64_t> vocab;        // not given: from the token file's manifest, else 50257
  std::optional<std::int64_t> max_seq_len;  // not given: kDefaultMaxSeqLen
  std::string init_file;                    // empty: random (train, plan). A file gives all of the above.

  bool operator==(const ModelOptions&) const = default;
};

constexpr int kLargestMicroBatches = 1 << 20;

struct BatchOptions {
  std::int64_t seq_len = 256;         // T
  std::int64_t micro_batch_size = 4;  // b, rows
  int micro_batches = 8;              // m, per step and pipeline
  bool micro_batches_given = false;   // a schedule file has an m of its own
  std::int64_t global_rows = 0;       // --global-batch-size, which sets m; 0: not given
  int data_parallel = 1;              // d
  // G, of the whole step; not given: d, or 2d if the schedule has two directions
  std::optional<int> accumulation_groups;
  int zero = 0;  // shared among the replicas: 1: optimizer state; 2: gradients, too; 3: parameters, too

  RankOrder rank_order = RankOrder::pipeline;

  std::int64_t rows() const { return micro_batch_size * micro_batches * data_parallel; }  // of one step

  bool operator==(const BatchOptions&) const = default;
};

enum class OptimizerStep : std::uint8_t { synchronous, optimistic };

struct OptimizerOptions {
  OptimizerKind optimizer = OptimizerKind::adamw;
  MuonScale muon_scale = MuonScale::rms;
  double learning_rate = 3e-4;
  LearningRateShape lr_schedule = LearningRateShape::cosine;
  std::int64_t warmup_steps = 0;
  double min_lr_fraction = 0.1;  // of learning_rate, at the end of the decay
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double grad_clip = 1.0;  // largest global norm; 0: off
  OptimizerStep optimizer_step = OptimizerStep::synchronous;
  bool delay_correction = false;  // error feedback

  bool operator==(const OptimizerOptions&) const = default;
};

constexpr int kLargestThreads = 1024;  // per rank

struct RunOptions {
  std::int64_t steps = 1000;                // in total, also after a resume
  std::int64_t val_every = 100;             // steps; 0: only after the last. Without val_data: never
  std::optional<std::int64_t> val_batches;  // of a step's rows; none: four, or fewer if the data are shorter
  std::int64_t eval_every = 0;              // steps, of multiple_choice; 0: only after the last
  std::int64_t sample_every = 0;            // steps; 0: never
  std::string output;      // directory of log.jsonl and checkpoints (status: the word DIR); empty: the default
  bool overwrite = false;  // give up the run that is in `output`
  std::int64_t checkpoint_every = 0;  // steps; 0: see the next
  double checkpoint_seconds = 900;    // between checkpoints; 0: only by steps and after the last
  double time_limit = 0;              // seconds of the whole program; 0: none
  std::int64_t max_skipped = 0;       // how many steps with a loss or norm that is not finite to skip
  double stall_timeout = 120;         // seconds
  int keep = 3;                       // how many checkpoints to keep, the newest
  std::string resume;                 // "latest", "auto", a path, or empty: start anew
  std::int64_t log_every = 1;         // lines of steps on the screen
  bool quiet = false;                 // only notes, errors and the files left at the end
  bool final_timeline = true;         // the picture and the table of one step, at the end
  std::int64_t records = 64 << 20;    // bytes that records.bin may take; 0: none
  std::string trace;                  // Chrome trace file; empty: none
  std::string svg;                    // timeline of one step; empty: none
  int threads = 0;                    // per rank; 0: OMP_NUM_THREADS, else cores / ranks on the host

  bool operator==(const RunOptions&) const = default;
};

struct PartitionOption {
  enum class Kind : std::uint8_t { measured, uniform, list };
  Kind kind = Kind::measured;
  std::vector<int> units;  // per virtual stage, if a list

  bool operator==(const PartitionOption&) const = default;
};

struct RecomputeOption {
  enum class Kind : std::uint8_t { none, automatic, list };
  Kind kind = Kind::none;
  std::vector<int> units;  // recomputed per virtual stage, if a list

  bool operator==(const RecomputeOption&) const = default;
};

struct PipelineOptions {
  std::vector<std::string> schedules = {"1f1b"};  // one; simulate: also several, "all" is spelled out here
  bool all_schedules = false;                     // simulate: "all" was given, so illegal schedules are left out
  int chunks = 0;                                 // v; 0: the schedule's default. See chunks_for
  int group_size = 0;                             // g; 0: the smallest legal one. See group_size_for
  int warmup_factor = 1;                          // w, of schedules without a flush
  std::string schedule_file;                      // CSV; replaces `schedules`
  PartitionOption partition;
  std::string profile;  // file of measured costs: `profile` writes it, train and plan read it; empty: measure now
  RecomputeOption recompute;
  std::int64_t memory_limit = 0;                 // bytes per rank, of a list the smallest; 0: the device's memory
  std::vector<std::int64_t> memory_limits = {};  // plan: a list, one per rank of a pipeline; else empty

  const std::string& schedule() const { return schedules.front(); }
  std::vector<int> auto_chunks = {1, 2, 3, 4};  // --schedule auto: the v that it considers
  double search_seconds = 0;                    // --schedule auto: limit of the search; 0: none

  // The values of --chunks and --group-size for one of several schedules: 0, its default, where they do not apply.
  int chunks_for(const std::string& name) const;
  int group_size_for(const std::string& name) const;

  bool operator==(const PipelineOptions&) const = default;
};

enum class DeviceKind : std::uint8_t { automatic, cpu, cuda, timed };

struct DeviceOptions {
  DeviceKind device = DeviceKind::automatic;
  std::optional<Precision> precision;  // not given: bf16 on cuda, fp32 elsewhere

  bool operator==(const DeviceOptions&) const = default;
};

struct CostOptions {
  int stages = 0;        // p; 0: not given
  Costs costs;           // milliseconds and GB/s; list lengths are checked where p and v are known
  bool given = false;    // true if any --cost-... of an action or a link was given
  double reduction = 0;  // ms for reducing a rank's gradients over replicas; 0: nothing is reduced
  Cluster cluster;       // instead of the links of `costs`, if it is given
  bool cluster_given = false;

  bool operator==(const CostOptions&) const = default;
};

// plan --ranks: which options are given, and so held; the others are searched.
struct LayoutOptions {
  int ranks = 0;                // N; 0: one layout is planned
  double flops_per_second = 0;  // of a rank; 0: not given, a profile says
  bool holds_replicas = false, holds_zero = false, holds_rows = false, holds_order = false, holds_schedule = false;
  bool holds_recompute = false;

  bool operator==(const LayoutOptions&) const = default;
};

struct SimulateOutputOptions {
  bool ascii = false;
  bool json = false;
  std::string svg;
  std::string csv;
  std::string html;     // page of one schedule; empty: none
  bool pareto = false;  // --schedule auto: time against memory
  int steps = 12;       // of schedules that never flush, from fill to drain
  std::string expect;   // conditions (commands/expectations.h); empty: none
  Objective objective = Objective::makespan;
  std::vector<double>
      memory_limit;            // --activation-limit, in units of peak_live, for all ranks or for each; empty: none
  double weight_memory = 1.0;  // fraction of an activation that stays alive between I and W

  bool operator==(const SimulateOutputOptions&) const = default;
};

struct TestingOptions {
  std::string inject_delay;        // empty: none
  bool synchronous_sends = false;  // every send waits for its receive

  bool operator==(const TestingOptions&) const = default;
};

struct PrepareOptions {
  std::string text;       // glob
  std::string output;     // token file, or a folder
  std::string tokenizer;  // "bytes", "learn", or a file or folder; empty: bytes for a token file, learn for a folder
  std::string pattern;    // regular expression that splits text; empty: the tokenizer's own
  std::int64_t vocab = 4096;           // of a vocabulary that is learned
  std::string field = "text";          // of JSONL rows
  std::optional<double> val_fraction;  // not given: 0.1 for a folder, else none
  std::int64_t shard_tokens = 0;       // 0: one file

  bool operator==(const PrepareOptions&) const = default;
};

struct ConvertOptions {
  std::string output;                  // FILE.bin: llm.c's layout; else a folder, Hugging Face's
  std::optional<Precision> precision;  // not given: that of the model it reads
  std::int64_t shard_bytes = 0;        // of model.safetensors; 0: one file

  bool operator==(const ConvertOptions&) const = default;
};

struct GenerateOptions {
  std::string prompt;
  std::int64_t tokens = 256;
  bool interactive = false;
  std::string stop;  // text that ends generation; empty: none
  bool ignore_eos = false;
  std::string tokenizer;     // empty: the model's own
  double temperature = 1.0;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;

  bool operator==(const GenerateOptions&) const = default;
};

struct Options {
  Command command = Command::train;
  DataOptions data;
  ModelOptions model;
  BatchOptions batch;
  OptimizerOptions optimizer;
  RunOptions run;
  PipelineOptions pipeline;
  DeviceOptions device;
  CostOptions costs;
  LayoutOptions layouts;
  SimulateOutputOptions simulate;
  TestingOptions testing;
  PrepareOptions prepare;
  ConvertOptions convert;
  GenerateOptions generate;
  bool plan_json = false;  // plan: the plan event alone
  bool verify = false;     // whatif: replay its rows on the timed device

  bool help = false;           // print help_text() (commands/cli/help.h), nothing else
  bool version = false;        // print version_text() (commands/cli/version.h), nothing else
  bool command_named = false;  // otherwise it is train, by default

  bool operator==(const Options&) const = default;
};

// `arguments`: the words after the program's name. Throws std::invalid_argument with one message that names the option,
// the value found and what would be right.
Options parse_options(const std::vector<std::string>& arguments);

const char* to_string(Command command);

}  // namespace train_gpt

#include "commands/cli/options_table.h"

#include <algorithm>

#include "commands/cli/other_names.h"
#include "data/token_file.h"
#include "data/vocabulary.h"
#include "model/config.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/flushless.h"

namespace train_gpt {
namespace {

using Value = OptionValue;

constexpr CommandSet kTrain = only(Command::train);
constexpr CommandSet kEvaluate = only(Command::evaluate);
constexpr CommandSet kSimulate = only(Command::simulate);
constexpr CommandSet kPlan = only(Command::plan);
constexpr CommandSet kProfile = only(Command::profile);
constexpr CommandSet kPrepare = only(Command::prepare);
constexpr CommandSet kConvert = only(Command::convert);
constexpr CommandSet kGenerate = only(Command::generate);
constexpr CommandSet kStatus =
    only(Command::status) | only(Command::checkpoint) | only(Command::report) | only(Command::whatif);
constexpr CommandSet kWhatIf = only(Command::whatif);
constexpr CommandSet kSized = kTrain | kPlan | kProfile | kSimulate;  // describe a model
constexpr CommandSet kPipelined = kTrain | kEvaluate | kPlan;         // run or plan a pipeline
constexpr CommandSet kComputing = kPipelined | kProfile | kGenerate;  // use a device

constexpr int kLargestCount = 1 << 20;                           // ranks
constexpr int kLargestLayers = 1 << 16;                          // plans take 50 us for each
constexpr int kLargestChunks = 1 << 10;                          // so that p * v is an int
constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;     // sizes of a model or a batch
constexpr std::int64_t kLargestLearned = std::int64_t{1} << 24;  // ids
constexpr double kLargestTime = 1e9;                             // seconds, 30 years
constexpr std::int64_t kLargestSteps = std::int64_t{1} << 40;
constexpr double kLargestCost = 1e12;     // ms, 30 years: timelines and sums of them stay finite
constexpr double kLeastBandwidth = 1e-9;  // GB/s: one byte per second
constexpr double kLargestMemory = 1e6;    // activations

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

void set_checkpoint_every(Options& o, const Value& v) {
  const bool steps = !v.raw().empty() && v.raw().find_first_not_of("0123456789") == std::string::npos;
  o.run.checkpoint_every = steps ? v.integer<std::int64_t>(0, kLargestSteps) : 0;
  o.run.checkpoint_seconds = steps ? 0 : v.seconds(1, kLargestTime);
}

std::vector<double>& cost(Options& o, std::vector<double> Costs::*which) {
  o.costs.given = true;
  return o.costs.costs.*which;
}

std::vector<OptionSpec> data_options() {
  return {{"train-data", "GLOB", kDemoTrainData, kTrain | kPlan | kProfile,
           "token files to train on; the default is what `make demo` prepares",
           [](Options& o, const Value& v) { o.data.train_data = v.text(); }},
          {"data", "DIR", nullptr, kTrain, "a folder that `prepare` made: --train-data and --val-data in one",
           [](Options& o, const Value& v) { o.data.folder = v.text(); }},
          {"multiple-choice", "FILE.jsonl", nullptr, kTrain | kEvaluate,
           "questions with endings, HellaSwag's rows: the share whose right ending is the likeliest",
           [](Options& o, const Value& v) { o.data.multiple_choice = v.text(); }},
          {"val-data", "GLOB", nullptr, kTrain | kEvaluate, "token files to validate on",
           [](Options& o, const Value& v) { o.data.val_data = v.text(); }},
          {"shuffle", "true|false", "true", kTrain, "read windows in random order; false: consecutive windows",
           [](Options& o, const Value& v) { o.data.shuffle = v.boolean(); }},
          {"seed", "N", "1", kTrain | kGenerate, "of sample order, initial parameters and sampling",
           [](Options& o, const Value& v) { o.data.seed = v.integer<std::uint64_t>(0); }}};
}

std::vector<OptionSpec> model_options() {
  return {
      {"model", "NAME", "d6", kSized,
       "d6, d12, d24, d36 or d48: layers/heads/hidden 6/6/384, 12/12/768, 24/16/1024, 36/20/1280, 48/25/1600",
       [](Options& o, const Value& v) {
         const std::string name = renamed(v.raw(), {{"gpt2", "d12"},
                                                    {"gpt2-small", "d12"},
                                                    {"gpt2-medium", "d24"},
                                                    {"gpt2-large", "d36"},
                                                    {"gpt2-xl", "d48"}});
         preset(name);  // refuses what it does not know
         o.model.preset = name;
       }},
      {"layers", "N", nullptr, kSized, "with --heads and --hidden, instead of --model",
       [](Options& o, const Value& v) { o.model.layers = v.integer<std::int64_t>(1, kLargestLayers); }},
      {"heads", "N", nullptr, kSized, "divides --hidden",
       [](Options& o, const Value& v) { o.model.heads = v.integer<std::int64_t>(1, kLargestCount); }},
      {"hidden", "N", nullptr, kSized, "width C",
       [](Options& o, const Value& v) { o.model.hidden = v.integer<std::int64_t>(1, kLargestSize); }},
      {"tied", "true|false", "true", kTrain | kPlan | kProfile,
       "one matrix serves as token embedding and as classifier",
       [](Options& o, const Value& v) { o.model.tied = v.boolean(); }},
      {"vocab", "N", nullptr, kTrain | kPlan | kProfile,
       "number of ids; without it what the token file's manifest says, else 50257",
       [](Options& o, const Value& v) { o.model.vocab = v.integer<std::int64_t>(1, kLargestSize - 1); }},
      {"max-seq-len", "N", nullptr, kTrain | kPlan | kProfile, "positions that the model knows; 1024 if not given",
       [](Options& o, const Value& v) { o.model.max_seq_len = v.integer<std::int64_t>(1, kLargestSize); }},
      {"init", "random|FILE|DIR", "random", kTrain | kPlan | kProfile,
       "initial parameters; a model file, or the folder of a run, a checkpoint or Hugging Face, gives the sizes, too",
       [](Options& o, const Value& v) { o.model.init_file = v.text() == "random" ? "" : v.raw(); }},
      {"init", "FILE|DIR", nullptr, kEvaluate | kGenerate,
       "model file, or the folder of a run, of a checkpoint, or of Hugging Face (model.safetensors); without it "
       "out/latest",
       [](Options& o, const Value& v) { o.model.init_file = v.text(); }},
      {"init", "FILE|DIR", nullptr, kConvert,
       "model file, or the folder of a run, of a checkpoint, or of Hugging Face (model.safetensors)",
       [](Options& o, const Value& v) { o.model.init_file = v.text(); }}};
}

std::vector<OptionSpec> batch_options() {
  return {
      {"seq-len", "T", "256", kPipelined | kProfile | kSimulate, "tokens per row",
       [](Options& o, const Value& v) { o.batch.seq_len = v.integer<std::int64_t>(1, kLargestSize); }},
      {"micro-batch-size", "b", "4", kPipelined | kProfile | kSimulate, "rows per micro-batch",
       [](Options& o, const Value& v) { o.batch.micro_batch_size = v.integer<std::int64_t>(1, kLargestSize); }},
      {"micro-batches", "m", "8", kPipelined | kSimulate, "per step and pipeline: a step is d*m*b rows",
       [](Options& o, const Value& v) {
         o.batch.micro_batches = v.integer<int>(1, kLargestMicroBatches);
         o.batch.micro_batches_given = true;
       }},
      {"global-batch-size", "ROWS", nullptr, kPipelined | kSimulate,
       "rows of one step, d*m*b: sets m, instead of --micro-batches",
       [](Options& o, const Value& v) { o.batch.global_rows = v.integer<std::int64_t>(1, kLargestSize); }},
      {"data-parallel", "d", "1", kPipelined, "replicas of the pipeline; there are p*d ranks",
       [](Options& o, const Value& v) { o.batch.data_parallel = v.integer<int>(1, kLargestCount); }},
      {"zero", "0|1|2|3", "0", kTrain | kPlan,
       "each of the d replicas keeps of its part of the parameters alone 1: the optimizer state; 2: the gradients as "
       "well; 3: the parameters, too",
       [](Options& o, const Value& v) { o.batch.zero = v.integer<int>(0, 3); }},
      {"rank-order", "pipeline|replicas", "pipeline", kTrain,
       "which ranks are neighbours, as the launcher numbers them: those of a pipeline, or the replicas of a stage",
       [](Options& o, const Value& v) {
         o.batch.rank_order =
             v.choice<RankOrder>({{"pipeline", RankOrder::pipeline}, {"replicas", RankOrder::replicas}});
       }},
      {"accumulation-groups", "G", nullptr, kTrain | kPlan,
       "order of sums: the step's d*m micro-batches in G groups, those in a binary tree; a power of two that d "
       "divides, "
       "2d for dualpipe (the default)",
       [](Options& o, const Value& v) { o.batch.accumulation_groups = v.integer<int>(1, kLargestCount); }}};
}

std::vector<OptionSpec> optimizer_options() {
  return {
      {"optimizer", "NAME", "adamw", kTrain | kPlan,
       "adamw, or muon: the layers' matrices by Muon (momentum .95), everything else by AdamW",
       [](Options& o, const Value& v) {
         o.optimizer.optimizer =
             v.choice<OptimizerKind>({{"adamw", OptimizerKind::adamw}, {"muon", OptimizerKind::muon}});
       }},
      {"muon-scale", "NAME", "rms", kTrain,
       "rms: steps as large as AdamW's, for the same --learning-rate; spectral: sqrt(max(1, rows/columns))",
       [](Options& o, const Value& v) {
         o.optimizer.muon_scale = v.choice<MuonScale>({{"rms", MuonScale::rms}, {"spectral", MuonScale::spectral}});
       }},
      {"learning-rate", "X", "0.0003", kTrain, "largest rate",
       [](Options& o, const Value& v) { o.optimizer.learning_rate = v.number(0); }},
      {"lr-schedule", "NAME", "cosine", kTrain, "constant, cosine, linear or wsd, after the warm-up",
       [](Options& o, const Value& v) {
         o.optimizer.lr_schedule = learning_rate_shape(renamed(v.raw(), {{"warmup-stable-decay", "wsd"}}));
       }},
      {"warmup-steps", "N", "0", kTrain, "the rate rises linearly over these steps",
       [](Options& o, const Value& v) { o.optimizer.warmup_steps = v.integer<std::int64_t>(0, kLargestSteps); }},
      {"min-lr-fraction", "X", "0.1", kTrain, "of --learning-rate, where the decay ends",
       [](Options& o, const Value& v) { o.optimizer.min_lr_fraction = v.number(0, 1); }},
      {"weight-decay", "X", "0.1", kTrain, "decoupled, of matrices only",
       [](Options& o, const Value& v) { o.optimizer.weight_decay = v.number(0); }},
      {"beta1", "X", "0.9", kTrain, "AdamW",
       [](Options& o, const Value& v) { o.optimizer.beta1 = v.fraction_below_one(); }},
      {"beta2", "X", "0.95", kTrain, "AdamW",
       [](Options& o, const Value& v) { o.optimizer.beta2 = v.fraction_below_one(); }},
      {"eps", "X", "1e-8", kTrain, "AdamW", [](Options& o, const Value& v) { o.optimizer.eps = v.positive_number(); }},
      {"grad-clip", "X", "1.0", kTrain, "largest global gradient norm; 0: off (the norm is logged all the same)",
       [](Options& o, const Value& v) { o.optimizer.grad_clip = v.number(0); }},
      {"optimizer-step", "NAME", "synchronous", kTrain | kPlan,
       "synchronous, or optimistic: update before the global norm is known, redo if it demands so",
       [](Options& o, const Value& v) {
         o.optimizer.optimizer_step = v.choice<OptimizerStep>(
             {{"synchronous", OptimizerStep::synchronous}, {"optimistic", OptimizerStep::optimistic}});
       }},
      {"delay-correction", "NAME", "none", kTrain | kPlan,
       "of 2bw, whose gradients are a step old: none, or error-feedback: step along twice the update less the one "
       "before",
       [](Options& o, const Value& v) {
         o.optimizer.delay_correction = v.choice<bool>({{"none", false}, {"error-feedback", true}});
       }}};
}

std::vector<OptionSpec> run_options() {
  return {
      {"steps", "N", "1000", kTrain, "in total, also after a resume",
       [](Options& o, const Value& v) { o.run.steps = v.integer<std::int64_t>(1, kLargestSteps); }},
      {"val-every", "N", "100", kTrain, "validate before every Nth step and after the last; 0: after the last",
       [](Options& o, const Value& v) { o.run.val_every = v.integer<std::int64_t>(0, kLargestSteps); }},
      {"val-batches", "K", nullptr, kTrain | kEvaluate,
       "of one step's rows, from the start of --val-data; without it 4, or as many as there are",
       [](Options& o, const Value& v) { o.run.val_batches = v.integer<std::int64_t>(1, kLargestSteps); }},
      {"eval-every", "N", "0", kTrain,
       "answer --multiple-choice before every Nth step and after the last; 0: after the last",
       [](Options& o, const Value& v) { o.run.eval_every = v.integer<std::int64_t>(0, kLargestSteps); }},
      {"sample-every", "N", "0", kTrain, "print generated text every N steps; 0: never",
       [](Options& o, const Value& v) { o.run.sample_every = v.integer<std::int64_t>(0, kLargestSteps); }},
      {"output", "DIR", nullptr, kTrain,
       "folder of log.jsonl and checkpoints, for this run alone; without it out/run-K, in a Slurm job out/job-ID",
       [](Options& o, const Value& v) { o.run.output = v.text(); }},
      {"output", "DIR", nullptr, kEvaluate, "folder for a log of the evaluation; without it nothing is written",
       [](Options& o, const Value& v) { o.run.output = v.text(); }},
      {"overwrite", nullptr, nullptr, kTrain | kEvaluate, "remove the run that is in --output first",
       [](Options& o, const Value&) { o.run.overwrite = true; }},
      {"output", "DIR", nullptr, kStatus, "the folder of the run, its name alone is enough; without it out/latest",
       [](Options& o, const Value& v) { o.run.output = v.text(); }},
      {"checkpoint-every", "N|TIME", "15min", kTrain,
       "write a checkpoint every N steps, or every so often but in at most 2% of the time, and after the last step; 0: "
       "after the last",
       set_checkpoint_every},
      {"time-limit", "TIME", nullptr, kTrain, "stop with a checkpoint before so much time is over, such as 3h50m",
       [](Options& o, const Value& v) { o.run.time_limit = v.seconds(1, kLargestTime); }},
      {"max-skipped", "N", "0", kTrain,
       "leave out up to N steps whose loss or gradient norm is not finite; the next one ends the run",
       [](Options& o, const Value& v) { o.run.max_skipped = v.integer<std::int64_t>(0, kLargestSteps); }},
      {"stall-timeout", "TIME", "120s", kTrain | kEvaluate, "end the run when a rank shows no sign of life for so long",
       [](Options& o, const Value& v) { o.run.stall_timeout = v.seconds(1, kLargestTime); }},
      {"records", "BYTES", "64MiB", kTrain,
       "records.bin, what every step took on every rank, for `train_gpt whatif`, takes at most so much; 0: none",
       [](Options& o, const Value& v) { o.run.records = v.raw() == "0" ? 0 : v.bytes(); }},
      {"keep", "K", "3", kTrain, "keep the newest K checkpoints",
       [](Options& o, const Value& v) { o.run.keep = v.integer<int>(1, kLargestCount); }},
      {"resume", "latest|auto|PATH", nullptr, kTrain,
       "go on from a checkpoint, whatever --init says; latest: the furthest of --output; auto: likewise, or start anew",
       [](Options& o, const Value& v) { o.run.resume = v.text(); }},
      {"log-every", "N", "1", kTrain, "print the line of every Nth step; log.jsonl has all of them",
       [](Options& o, const Value& v) { o.run.log_every = v.integer<std::int64_t>(1, kLargestSteps); }},
      {"quiet", nullptr, nullptr, kTrain, "print only notes, errors and the last line",
       [](Options& o, const Value&) { o.run.quiet = true; }},
      {"final-timeline", "true|false", "true", kTrain,
       "at the end, print the timeline of one step and where its time went",
       [](Options& o, const Value& v) { o.run.final_timeline = v.boolean(); }},
      {"trace", "FILE", nullptr, kTrain, "write a Chrome/Perfetto trace",
       [](Options& o, const Value& v) { o.run.trace = v.text(); }},
      {"svg", "FILE", nullptr, kTrain, "draw the timeline of one step, measured above predicted",
       [](Options& o, const Value& v) { o.run.svg = v.text(); }},
      {"threads", "N", nullptr, kComputing,
       "per rank; without it OMP_NUM_THREADS, else the host's cores divided by its ranks",
       [](Options& o, const Value& v) { o.run.threads = v.integer<int>(1, kLargestThreads); }}};
}

void set_chunks(Options& o, const Value& v) {
  const std::vector<int> chunks = v.integers(1);
  for (const int value : chunks)
    if (value > kLargestChunks) v.refuse("is out of range; give 1 to " + std::to_string(kLargestChunks));
  o.pipeline.chunks = chunks.size() == 1 ? chunks.front() : 0;
  o.pipeline.auto_chunks = chunks;
}

std::vector<OptionSpec> pipeline_options() {
  return {
      {"schedule", "NAME", "1f1b", kPipelined, pipelined_schedule_help(), set_schedules},
      {"schedule", "NAME,...|all", "1f1b", kSimulate, simulated_schedule_help(), set_schedules},
      {"chunks", "v|LIST", nullptr, kPipelined | kSimulate,
       "virtual stages per rank; a LIST: what --schedule auto considers (default 1,2,3,4; 2 includes the V)",
       set_chunks},
      {"group-size", "g", nullptr, kPipelined | kSimulate,
       "micro-batches per group of interleaved and interleaved-zb; by default the smallest legal one",
       [](Options& o, const Value& v) { o.pipeline.group_size = v.integer<int>(1, kLargestCount); }},
      {"warmup-factor", "w", "1", kPipelined | kSimulate,
       "of 2bw: w forwards ahead for each rank that follows; 2 where messages take their time",
       [](Options& o, const Value& v) { o.pipeline.warmup_factor = v.integer<int>(1, 2); }},
      {"search-seconds", "X", nullptr, kSimulate | kPlan,
       "end the search of --schedule auto after so long, with the best so far",
       [](Options& o, const Value& v) { o.pipeline.search_seconds = v.seconds(0.001, kLargestCost); }},
      {"schedule-file", "CSV", nullptr, kPipelined | kSimulate, "a schedule in PyTorch's form, instead of --schedule",
       [](Options& o, const Value& v) { o.pipeline.schedule_file = v.text(); }},
      {"partition", "measured|uniform|LIST", "measured", kPipelined,
       "how units are shared out; LIST: units per virtual stage such as 5,4,4,5", set_partition},
      {"profile", "FILE", nullptr, kPipelined | kProfile,
       "measured costs: written by `train_gpt profile`, else read instead of measuring",
       [](Options& o, const Value& v) { o.pipeline.profile = v.text(); }},
      {"recompute", "none|auto|LIST", "none", kTrain | kPlan,
       "forget activations and compute them again; LIST: units per virtual stage; auto: as few as fit the memory",
       set_recompute},
      {"verify", nullptr, nullptr, kWhatIf, "run what the table says on the timed device, and show what it takes there",
       [](Options& o, const Value&) { o.verify = true; }},
      {"memory-limit", "BYTES", nullptr, kPipelined | kWhatIf,
       "per rank, such as 80GB or 512MiB; without it what the device has",
       [](Options& o, const Value& v) { o.pipeline.memory_limit = v.bytes(); }}};
}

std::vector<OptionSpec> device_options() {
  return {{"device", "auto|cpu|cuda|timed", "auto", kPipelined,
           "timed: actions only take the time that the costs give them",
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
           "of activations; without it bf16 on cuda and fp32 elsewhere", [](Options& o, const Value& v) {
             const OptionValue ours("--precision",
                                    renamed(v.raw(), {{"float32", "fp32"}, {"float", "fp32"}, {"bfloat16", "bf16"}}));
             o.device.precision = ours.choice<Precision>({{"fp32", Precision::fp32}, {"bf16", Precision::bf16}});
           }}};
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
       "ms of latency of one hop, never divided. LINKS: one value; or one per link r to r+1 (the last leads back to "
       "rank "
       "0, may be left out where nothing takes it); or those upwards, then those downwards",
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
       "ms of reducing a rank's gradients over replicas; each of its stages takes 1/v, as soon as its last W is done",
       [](Options& o, const Value& v) { o.costs.reduction = v.milliseconds(0, kLargestCost); }},
      {"cost-fused", "LIST", nullptr, commands, "ms of a fused F&B pair; without it one after the other",
       [](Options& o, const Value& v) { cost(o, &Costs::fused) = v.milliseconds_list(0, kLargestCost); }}};
}

// plan and train limit the same memory in bytes.
void set_activation_limit(Options& o, const Value& v) {
  const std::optional<ParsedQuantity> bytes = parse_quantity(v.raw(), Quantity::bytes);
  if (bytes && bytes->has_unit) {
    v.refuse(
        "is a size in bytes, of which simulate knows nothing; give a number of activations of one micro-batch, such as "
        "4.5, or ask plan");
  }
  o.simulate.memory_limit = v.positive_numbers(kLargestMemory);
}

std::vector<OptionSpec> output_options() {
  return {{"ascii", nullptr, nullptr, kSimulate, "print the timelines",
           [](Options& o, const Value&) { o.simulate.ascii = true; }},
          {"json", nullptr, nullptr, kSimulate, "print one JSON array and nothing else",
           [](Options& o, const Value&) { o.simulate.json = true; }},
          {"json", nullptr, nullptr, kPlan, "print the plan as one JSON object (as in log.jsonl) and nothing else",
           [](Options& o, const Value&) { o.plan_json = true; }},
          {"svg", "FILE", nullptr, kSimulate, "draw the timelines",
           [](Options& o, const Value& v) { o.simulate.svg = v.text(); }},
          {"csv", "FILE", nullptr, kSimulate, "write the schedule in the form that --schedule-file reads",
           [](Options& o, const Value& v) { o.simulate.csv = v.text(); }},
          {"html", "FILE", nullptr, kSimulate,
           "a page of one schedule: steps through time, shows what waits for what, and the memory of every rank",
           [](Options& o, const Value& v) { o.simulate.html = v.text(); }},
          {"pareto", nullptr, nullptr, kSimulate,
           "with --schedule auto: makespan against memory, of named schedules and the search; --svg FILE draws it",
           [](Options& o, const Value&) { o.simulate.pareto = true; }},
          {"expect", "CONDITIONS", nullptr, kSimulate,
           "such as makespan<=27,peak<=4: says whether every schedule meets them, and ends with status 1 if not",
           [](Options& o, const Value& v) { o.simulate.expect = v.text(); }},
          {"objective", "makespan|span", "makespan", kSimulate, "what --schedule auto makes small",
           [](Options& o, const Value& v) {
             o.simulate.objective = v.choice<Objective>({{"makespan", Objective::makespan}, {"span", Objective::span}});
           }},
          {"activation-limit", "LIST", nullptr, kSimulate,
           "memory per rank, in activations of one micro-batch through one rank's share: one value or p values",
           set_activation_limit},
          {"weight-memory", "X", "1", kSimulate, "fraction of an activation that stays alive between I and W",
           [](Options& o, const Value& v) { o.simulate.weight_memory = v.number(0, 1); }}};
}

std::vector<OptionSpec> testing_options() {
  return {{"inject-delay", "SPEC", nullptr, kTrain | kEvaluate, "delay actions and messages at random",
           [](Options& o, const Value& v) { o.testing.inject_delay = v.text(); }},
          {"synchronous-sends", nullptr, nullptr, kTrain | kEvaluate, "every send waits for its receive",
           [](Options& o, const Value&) { o.testing.synchronous_sends = true; }}};
}

std::vector<OptionSpec> prepare_options() {
  return {
      {"text", "GLOB", nullptr, kPrepare,
       "text files: a document each, or several with <|endoftext|> between them; .jsonl: a document per row",
       [](Options& o, const Value& v) { o.prepare.text = v.text(); }},
      {"field", "NAME", "text", kPrepare, "the field of JSONL rows that is the document",
       [](Options& o, const Value& v) { o.prepare.field = v.text(); }},
      {"output", "FILE.bin|DIR", nullptr, kPrepare,
       "a token file, with FILE.bin.json that says what is in it; or a folder for train.bin, val.bin and "
       "tokenizer.json",
       [](Options& o, const Value& v) { o.prepare.output = v.text(); }},
      {"tokenizer", "bytes|learn|PATH", nullptr, kPrepare,
       "PATH: tokenizer.json, GPT-2's files, a .tiktoken list, or their folder; without it bytes for a token file, "
       "learn for a folder",
       [](Options& o, const Value& v) { o.prepare.tokenizer = v.text(); }},
      {"vocab", "N", "4096", kPrepare, "ids of the vocabulary that --tokenizer learn makes from the training part",
       [](Options& o, const Value& v) { o.prepare.vocab = v.integer<std::int64_t>(kByteVocab, kLargestLearned); }},
      {"pattern", "NAME|REGEX", nullptr, kPrepare,
       "what cuts text before tokens are merged: gpt2, cl100k, o200k, qwen, or an expression of your own; without it "
       "the tokenizer's, gpt2 for learn",
       [](Options& o, const Value& v) { o.prepare.pattern = v.text(); }},
      {"val-fraction", "X", nullptr, kPrepare,
       "of the documents, for val.bin; of few documents their last parts; 0.1 if --output is a folder",
       [](Options& o, const Value& v) { o.prepare.val_fraction = v.fraction_below_one(); }},
      {"shard-tokens", "N", nullptr, kPrepare, "tokens per file: train-000000.bin and so on; without it one file",
       [](Options& o, const Value& v) { o.prepare.shard_tokens = v.integer<std::int64_t>(2, kMaxTokensPerFile); }},
      {"threads", "N", nullptr, kPrepare, "without it as many as there are cores",
       [](Options& o, const Value& v) { o.run.threads = v.integer<int>(1, kLargestThreads); }}};
}

std::vector<OptionSpec> convert_options() {
  return {{"output", "FILE.bin|DIR", nullptr, kConvert,
           "FILE.bin: llm.c's model file; DIR: Hugging Face's model.safetensors, config.json and tokenizer.json",
           [](Options& o, const Value& v) { o.convert.output = v.text(); }},
          {"precision", "fp32|bf16", nullptr, kConvert, "of the parameters that are written; without it as they are",
           [](Options& o, const Value& v) {
             o.convert.precision = v.choice<Precision>({{"fp32", Precision::fp32}, {"bf16", Precision::bf16}});
           }},
          {"shard-size", "BYTES", nullptr, kConvert, "of model-00001-of-N.safetensors; without it one file",
           [](Options& o, const Value& v) { o.convert.shard_bytes = v.bytes(); }}};
}

std::vector<OptionSpec> generate_options() {
  return {{"interactive", nullptr, nullptr, kGenerate, "go on from each line that is typed, until Ctrl-D",
           [](Options& o, const Value&) { o.generate.interactive = true; }},
          {"stop", "TEXT", nullptr, kGenerate, "end where this text would appear",
           [](Options& o, const Value& v) { o.generate.stop = v.text(); }},
          {"ignore-eos", nullptr, nullptr, kGenerate, "go on past the end of a text",
           [](Options& o, const Value&) { o.generate.ignore_eos = true; }},
          {"tokenizer", "PATH", nullptr, kGenerate, "tokenizer.json or the like, where the model has none beside it",
           [](Options& o, const Value& v) { o.generate.tokenizer = v.text(); }},
          {"prompt", "TEXT", nullptr, kGenerate, "text to go on from; without it a new document",
           [](Options& o, const Value& v) { o.generate.prompt = v.raw(); }},
          {"tokens", "N", "256", kGenerate, "how many to generate",
           [](Options& o, const Value& v) { o.generate.tokens = v.integer<std::int64_t>(1, kLargestSteps); }},
          {"top-k", "K", "0", kGenerate, "sample among the K likeliest tokens only; 0: all",
           [](Options& o, const Value& v) { o.generate.top_k = v.integer<std::int64_t>(0, kLargestSize); }},
          {"top-p", "X", "1", kGenerate, "sample among the fewest tokens that together have this probability",
           [](Options& o, const Value& v) { o.generate.top_p = v.positive_number(1); }},
          {"temperature", "X", "1", kGenerate, "of sampling; 0: always the likeliest token",
           [](Options& o, const Value& v) { o.generate.temperature = v.number(0); }}};
}

std::vector<OptionSpec> make_table() {
  std::vector<OptionSpec> table;
  const auto add = [&table](OptionGroup group, const std::vector<OptionSpec>& options) {
    for (const OptionSpec& option : options) table.emplace_back(option).group = group;
  };
  add(OptionGroup::data, data_options());
  add(OptionGroup::model, model_options());
  add(OptionGroup::batch, batch_options());
  add(OptionGroup::optimizer, optimizer_options());
  add(OptionGroup::run, run_options());
  add(OptionGroup::pipeline, pipeline_options());
  add(OptionGroup::device, device_options());
  add(OptionGroup::costs, cost_options());
  add(OptionGroup::output, output_options());
  add(OptionGroup::testing, testing_options());
  add(OptionGroup::prepare, prepare_options());
  add(OptionGroup::convert, convert_options());
  add(OptionGroup::generate, generate_options());
  return table;
}

}  // namespace

const char* to_string(OptionGroup group) {
  constexpr const char* kNames[] = {"Data", "Model",  "Batch",   "Optimizer", "Run",     "Pipeline", "Device",
                                    "Cost", "Output", "Testing", "Prepare",   "Convert", "Generate"};
  return kNames[static_cast<std::size_t>(group)];
}

const std::vector<OptionSpec>& option_table() {
  static const std::vector<OptionSpec> table = make_table();
  return table;
}

const OptionSpec* find_option(Command command, const std::string& name) {
  const auto is_meant = [&](const OptionSpec& spec) {
    if (!spec.belongs_to(command)) return false;
    const std::vector<std::string> others = other_names_of(spec.name);
    return name == spec.name || std::find(others.begin(), others.end(), name) != others.end();
  };
  const std::vector<OptionSpec>& table = option_table();
  const auto found = std::find_if(table.begin(), table.end(), is_meant);
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> option_names(Command command) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : option_table()) {
    if (spec.belongs_to(command)) names.emplace_back(spec.name);
  }
  return names;
}

const std::vector<CommandSpec>& command_table() {
  static const std::vector<CommandSpec> table = {
      {Command::train, "train", "train a model (the default command)", true},
      {Command::evaluate, "evaluate", "loss of a model file on --val-data", true},
      {Command::simulate, "simulate", "run schedules on paper: makespan, bubbles, memory, timelines"},
      {Command::plan, "plan", "everything short of training: partition, schedule, memory, prediction"},
      {Command::profile, "profile", "measure what the units of a model and the messages between ranks cost", true},
      {Command::prepare, "prepare", "turn text files into token files, with a tokenizer that is given or learned"},
      {Command::convert, "convert", "a model between llm.c's file and Hugging Face's folder"},
      {Command::generate, "generate", "sample text from a model file", true},
      {Command::report, "report", "draw report.html anew from the log of a run, also of one that lives or was killed",
       false, "output"},
      {Command::whatif, "whatif", "what a step of a run would take if something were otherwise, from its records",
       false, "output"},
      {Command::status, "status", "the last action of every rank of a run, also after it was killed", false, "output"},
      {Command::checkpoint, "checkpoint", "ask a run that is alive for a checkpoint", false, "output"},
  };
  return table;
}

const CommandSpec& find_command(Command command) {
  const std::vector<CommandSpec>& table = command_table();
  return *std::find_if(table.begin(), table.end(), [&](const CommandSpec& spec) { return spec.command == command; });
}

}  // namespace train_gpt

// --help's headings Data, Model, Batch and Optimizer.
#include "commands/cli/options_groups.h"

#include "commands/cli/other_names.h"
#include "model/config.h"

namespace train_gpt {
namespace {

using Value = OptionValue;

constexpr int kLargestLayers = 1 << 16;  // plans take 50 us for each

}  // namespace

std::vector<OptionSpec> data_options() {
  return {{"train-data", "GLOB", kDemoTrainData, kTrain | kPlan | kProfile,
           "token files to train on; the default is what `make demo` prepares",
           [](Options& o, const Value& v) { o.data.train_data = v.text(); }},
          {"data", "DIR", nullptr, kTrain, "a folder that `prepare` made: --train-data and --val-data in one",
           [](Options& o, const Value& v) { o.data.folder = v.text(); }},
          {"multiple-choice", "FILE.jsonl", nullptr, kTrain | kEvaluate,
           "questions with endings in HellaSwag's form; reports how often the right ending is the likeliest",
           [](Options& o, const Value& v) { o.data.multiple_choice = v.text(); }},
          {"val-data", "GLOB", nullptr, kTrain | kEvaluate, "token files to validate on",
           [](Options& o, const Value& v) { o.data.val_data = v.text(); }},
          {"shuffle", "true|false", "true", kTrain, "read windows in random order; false: consecutive windows",
           [](Options& o, const Value& v) { o.data.shuffle = v.boolean(); }},
          {"seed", "N", "1", kTrain | kGenerate, "seed of sample order, initial parameters and sampling",
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
      {"tied", "true|false", "true", kTrain | kPlan | kProfile, "one matrix is both token embedding and classifier",
       [](Options& o, const Value& v) { o.model.tied = v.boolean(); }},
      {"vocab", "N", nullptr, kTrain | kPlan | kProfile | kSimulate,
       "number of ids; without it that of the token file's manifest, else 50257",
       [](Options& o, const Value& v) { o.model.vocab = v.integer<std::int64_t>(1, kLargestSize - 1); }},
      {"max-seq-len", "N", nullptr, kTrain | kPlan | kProfile, "number of positions of the model; 1024 if not given",
       [](Options& o, const Value& v) { o.model.max_seq_len = v.integer<std::int64_t>(1, kLargestSize); }},
      {"init", "random|FILE|DIR", "random", kTrain | kPlan | kProfile,
       "initial parameters; a model file, or the folder of a run, a checkpoint or Hugging Face, also sets the sizes",
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
      {"data-parallel", "d", "1", kPipelined | kSimulate, "replicas of the pipeline; there are p*d ranks",
       [](Options& o, const Value& v) { o.batch.data_parallel = v.integer<int>(1, kLargestCount); }},
      {"zero", "0|1|2|3", "0", kTrain | kPlan | kSimulate,
       "share among the d replicas 1: optimizer state; 2: gradients, too; 3: parameters, too",
       [](Options& o, const Value& v) { o.batch.zero = v.integer<int>(0, 3); }},
      {"rank-order", "pipeline|replicas", "pipeline", kTrain | kPlan | kSimulate,
       "which ranks are neighbours in the launcher's numbering: those of a pipeline, or the replicas of a stage",
       [](Options& o, const Value& v) {
         o.batch.rank_order =
             v.choice<RankOrder>({{"pipeline", RankOrder::pipeline}, {"replicas", RankOrder::replicas}});
       }},
      {"accumulation-groups", "G", nullptr, kTrain | kPlan,
       "order of sums: d*m micro-batches form G groups, summed in a binary tree; a power of two that is a multiple of "
       "d, for dualpipe of 2d (the defaults)",
       [](Options& o, const Value& v) { o.batch.accumulation_groups = v.integer<int>(1, kLargestCount); }}};
}

std::vector<OptionSpec> optimizer_options() {
  return {
      {"optimizer", "NAME", "adamw", kTrain | kPlan,
       "adamw; or muon: Muon (momentum .95) for the layers' matrices, AdamW for everything else",
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
      {"min-lr-fraction", "X", "0.1", kTrain, "fraction of --learning-rate at which the decay ends",
       [](Options& o, const Value& v) { o.optimizer.min_lr_fraction = v.number(0, 1); }},
      {"weight-decay", "X", "0.1", kTrain, "decoupled, for matrices only",
       [](Options& o, const Value& v) { o.optimizer.weight_decay = v.number(0); }},
      {"beta1", "X", "0.9", kTrain, "AdamW",
       [](Options& o, const Value& v) { o.optimizer.beta1 = v.fraction_below_one(); }},
      {"beta2", "X", "0.95", kTrain, "AdamW",
       [](Options& o, const Value& v) { o.optimizer.beta2 = v.fraction_below_one(); }},
      {"eps", "X", "1e-8", kTrain, "AdamW", [](Options& o, const Value& v) { o.optimizer.eps = v.positive_number(); }},
      {"grad-clip", "X", "1.0", kTrain, "largest global gradient norm; 0: off (the norm is still logged)",
       [](Options& o, const Value& v) { o.optimizer.grad_clip = v.number(0); }},
      {"optimizer-step", "NAME", "synchronous", kTrain | kPlan,
       "synchronous; or optimistic: update before the global norm is known, and redo the update if it has to be "
       "clipped",
       [](Options& o, const Value& v) {
         o.optimizer.optimizer_step = v.choice<OptimizerStep>(
             {{"synchronous", OptimizerStep::synchronous}, {"optimistic", OptimizerStep::optimistic}});
       }},
      {"delay-correction", "NAME", "none", kTrain | kPlan,
       "for 2bw, whose gradients are a step old: none; or error-feedback: step by twice the update minus the last one",
       [](Options& o, const Value& v) {
         o.optimizer.delay_correction = v.choice<bool>({{"none", false}, {"error-feedback", true}});
       }}};
}

}  // namespace train_gpt

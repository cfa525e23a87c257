// --help's headings Output, Testing, Prepare, Convert and Generate.
#include "commands/cli/options_groups.h"

#include "data/token_file.h"
#include "data/vocabulary.h"

namespace train_gpt {
namespace {

using Value = OptionValue;

constexpr std::int64_t kLargestLearned = std::int64_t{1} << 24;  // ids
constexpr double kLargestMemory = 1e6;                           // activations

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

}  // namespace

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
           "write a page of one schedule that steps through time and shows what waits for what and the memory of every "
           "rank",
           [](Options& o, const Value& v) { o.simulate.html = v.text(); }},
          {"pareto", nullptr, nullptr, kSimulate,
           "with --schedule auto: makespan against memory, of named schedules and the search; --svg FILE draws it",
           [](Options& o, const Value&) { o.simulate.pareto = true; }},
          {"expect", "CONDITIONS", nullptr, kSimulate,
           "check conditions such as makespan<=27,peak<=4 for every schedule, and end with status 1 if one fails",
           [](Options& o, const Value& v) { o.simulate.expect = v.text(); }},
          {"objective", "makespan|span", "makespan", kSimulate, "what --schedule auto minimises",
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
      {"field", "NAME", "text", kPrepare, "the field of JSONL rows that holds the document",
       [](Options& o, const Value& v) { o.prepare.field = v.text(); }},
      {"output", "FILE.bin|DIR", nullptr, kPrepare,
       "a token file and its description FILE.bin.json; or a folder for train.bin, val.bin and tokenizer.json",
       [](Options& o, const Value& v) { o.prepare.output = v.text(); }},
      {"tokenizer", "bytes|learn|PATH", nullptr, kPrepare,
       "PATH: tokenizer.json, GPT-2's files, a .tiktoken list, or their folder; without it bytes for a token file, "
       "learn for a folder",
       [](Options& o, const Value& v) { o.prepare.tokenizer = v.text(); }},
      {"vocab", "N", "4096", kPrepare, "size of the vocabulary that --tokenizer learn learns from the training part",
       [](Options& o, const Value& v) { o.prepare.vocab = v.integer<std::int64_t>(kByteVocab, kLargestLearned); }},
      {"pattern", "NAME|REGEX", nullptr, kPrepare,
       "how to split text before merging tokens: gpt2, cl100k, o200k, qwen, or a regular expression; without it the "
       "tokenizer's own, gpt2 for learn",
       [](Options& o, const Value& v) { o.prepare.pattern = v.text(); }},
      {"val-fraction", "X", nullptr, kPrepare,
       "share of the documents for val.bin; with few documents their last parts; 0.1 if --output is a folder",
       [](Options& o, const Value& v) { o.prepare.val_fraction = v.fraction_below_one(); }},
      {"shard-tokens", "N", nullptr, kPrepare, "tokens per file: train-000000.bin and so on; without it one file",
       [](Options& o, const Value& v) { o.prepare.shard_tokens = v.integer<std::int64_t>(2, kMaxTokensPerFile); }},
      {"threads", "N", nullptr, kPrepare, "without it one per core",
       [](Options& o, const Value& v) { o.run.threads = v.integer<int>(1, kLargestThreads); }}};
}

std::vector<OptionSpec> convert_options() {
  return {
      {"output", "FILE.bin|DIR", nullptr, kConvert,
       "FILE.bin: llm.c's model file; DIR: Hugging Face's model.safetensors, config.json and tokenizer.json",
       [](Options& o, const Value& v) { o.convert.output = v.text(); }},
      {"precision", "fp32|bf16", nullptr, kConvert, "precision of the written parameters; without it unchanged",
       [](Options& o, const Value& v) {
         o.convert.precision = v.choice<Precision>({{"fp32", Precision::fp32}, {"bf16", Precision::bf16}});
       }},
      {"shard-size", "BYTES", nullptr, kConvert, "largest size of model-00001-of-N.safetensors; without it one file",
       [](Options& o, const Value& v) { o.convert.shard_bytes = v.bytes(); }}};
}

std::vector<OptionSpec> generate_options() {
  return {{"interactive", nullptr, nullptr, kGenerate, "continue each line that you type, until Ctrl-D",
           [](Options& o, const Value&) { o.generate.interactive = true; }},
          {"stop", "TEXT", nullptr, kGenerate, "end before this text would appear",
           [](Options& o, const Value& v) { o.generate.stop = v.text(); }},
          {"ignore-eos", nullptr, nullptr, kGenerate, "continue past the end of a text",
           [](Options& o, const Value&) { o.generate.ignore_eos = true; }},
          {"tokenizer", "PATH", nullptr, kGenerate, "tokenizer.json or the like, if the model has none beside it",
           [](Options& o, const Value& v) { o.generate.tokenizer = v.text(); }},
          {"prompt", "TEXT", nullptr, kGenerate, "text to continue; without it a new document",
           [](Options& o, const Value& v) { o.generate.prompt = v.raw(); }},
          {"tokens", "N", "256", kGenerate, "how many to generate",
           [](Options& o, const Value& v) { o.generate.tokens = v.integer<std::int64_t>(1, kLargestSteps); }},
          {"top-k", "K", "0", kGenerate, "sample among the K likeliest tokens only; 0: all",
           [](Options& o, const Value& v) { o.generate.top_k = v.integer<std::int64_t>(0, kLargestSize); }},
          {"top-p", "X", "1", kGenerate, "sample among the fewest tokens that together have this probability",
           [](Options& o, const Value& v) { o.generate.top_p = v.positive_number(1); }},
          {"temperature", "X", "1", kGenerate, "temperature of sampling; 0: always the likeliest token",
           [](Options& o, const Value& v) { o.generate.temperature = v.number(0); }}};
}

}  // namespace train_gpt

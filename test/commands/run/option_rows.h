// The effects of each option of `train`. A row per option; an option without one fails EveryOption.HasARow.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace train_gpt::test {

using Arguments = std::vector<std::pair<std::string, std::string>>;  // option and value; no value: a flag

enum class Base : std::uint8_t { one_rank, two_ranks, timed };

struct OptionRow {
  std::string option;
  Arguments arguments;            // of the run that is looked at: they take the place of those of the base
  std::set<std::string> changes;  // facets (see facets_of); all others stay as they are without `arguments`
  Base base = Base::one_rank;
  Arguments given = {};                   // both runs have these as well
  std::set<std::string> leaves_out = {};  // options of the base that the run cannot have

  // The two ranks are no pipeline.
  bool ranks_are_replicas() const {
    const auto is_it = [](const auto& one) { return one.first == "data-parallel"; };
    return std::ranges::any_of(arguments, is_it) || std::ranges::any_of(given, is_it);
  }
};

// In values, `@` is the folder of the tests: `@/train.bin` `@/other.bin` tokens, `@/questions.jsonl` a question,
// `@/schedule.csv` a schedule for two ranks, `@/profile.json` and `@/other_profile.json` costs for them, `@/first` what
// the run of the base of one rank left with a checkpoint every 2 steps.
inline const std::vector<OptionRow>& option_rows() {
  const std::set<std::string> model = {"parameters", "first validation", "plan", "start"};
  const std::set<std::string> sizes = {"layers", "heads", "hidden"};
  static const std::vector<OptionRow> rows = {
      {"train-data", {{"train-data", "@/other.bin"}}, {"parameters", "start"}},
      {"data",  // its tokenizer goes along with the model
       {{"data", "@/data"}},
       {"parameters", "first validation", "plan", "start", "files"},
       Base::one_rank,
       {},
       {"train-data", "val-data"}},
      {"val-data", {{"val-data", "@/other.bin"}}, {"first validation", "start"}},
      {"shuffle", {{"shuffle", "false"}}, {"parameters", "start"}},
      {"seed", {{"seed", "7"}}, {"parameters", "first validation", "start"}},
      {"model", {{"model", "d6"}}, model, Base::one_rank, {{"steps", "2"}}, sizes},
      {"layers", {{"layers", "3"}}, model},
      {"heads", {{"heads", "4"}}, model},
      {"hidden", {{"hidden", "48"}}, model},
      {"tied", {{"tied", "false"}}, model},
      {"vocab", {{"vocab", "300"}}, model},
      {"max-seq-len", {{"max-seq-len", "32"}}, model},
      {"init", {{"init", "@/first"}}, {"parameters", "first validation"}, Base::one_rank, {}, sizes},
      {"seq-len", {{"seq-len", "8"}}, model},
      {"micro-batch-size", {{"micro-batch-size", "1"}}, model},
      {"micro-batches", {{"micro-batches", "8"}}, model},
      {"global-batch-size", {{"global-batch-size", "16"}}, model, Base::one_rank, {}, {"micro-batches"}},
      {"data-parallel", {{"data-parallel", "2"}}, model, Base::two_ranks, {}, {"profile"}},
      {"zero", {{"zero", "1"}}, {"plan"}, Base::two_ranks, {{"data-parallel", "2"}}, {"profile"}},
      {"rank-order",
       {{"rank-order", "replicas"}},
       {"resources"},
       Base::two_ranks,
       {{"data-parallel", "2"}},
       {"profile"}},
      {"accumulation-groups", {{"accumulation-groups", "2"}}, {"parameters", "plan", "start"}},
      {"optimizer", {{"optimizer", "muon"}}, {"parameters", "plan", "start"}},
      {"muon-scale", {{"muon-scale", "spectral"}}, {"parameters", "start"}, Base::one_rank, {{"optimizer", "muon"}}},
      {"learning-rate", {{"learning-rate", "2e-2"}}, {"parameters", "learning rates", "start"}},
      {"lr-schedule", {{"lr-schedule", "linear"}}, {"parameters", "learning rates", "start"}},
      {"warmup-steps", {{"warmup-steps", "2"}}, {"parameters", "learning rates", "start"}},
      {"min-lr-fraction", {{"min-lr-fraction", "0.5"}}, {"parameters", "learning rates", "start"}},
      {"weight-decay", {{"weight-decay", "0.5"}}, {"parameters", "start"}},
      {"beta1", {{"beta1", "0.5"}}, {"parameters"}},
      {"beta2", {{"beta2", "0.5"}}, {"parameters"}},
      {"eps", {{"eps", "1e-3"}}, {"parameters"}},
      {"grad-clip", {{"grad-clip", "0.01"}}, {"parameters", "start"}},
      {"optimizer-step", {{"optimizer-step", "optimistic"}}, {"plan"}, Base::two_ranks},
      {"delay-correction",
       {{"delay-correction", "error-feedback"}},
       {"parameters", "plan", "files"},
       Base::one_rank,
       {{"schedule", "2bw"}}},
      {"steps", {{"steps", "6"}}, {"parameters", "learning rates", "steps", "validated", "start", "files", "screen"}},
      {"val-every", {{"val-every", "1"}}, {"validated"}},
      {"val-batches", {{"val-batches", "2"}}, {"first validation"}},
      {"multiple-choice", {{"multiple-choice", "@/questions.jsonl"}}, {"answered"}},
      {"eval-every", {{"eval-every", "1"}}, {"answered"}, Base::one_rank, {{"multiple-choice", "@/questions.jsonl"}}},
      {"sample-every", {{"sample-every", "2"}}, {"screen", "plan"}},  // generation keeps keys and values
      {"output", {{"output", "@/elsewhere"}}, {}},
      {"overwrite", {{"output", "@/first"}, {"overwrite", ""}}, {}},
      {"checkpoint-every", {{"checkpoint-every", "2"}}, {"files"}},
      {"time-limit", {{"time-limit", "1h"}}, {}},   // a limit that is reached: stopping_test.cpp
      {"max-skipped", {{"max-skipped", "2"}}, {}},  // steps that are skipped: test/pipeline, finite tests
      {"stall-timeout", {{"stall-timeout", "1h"}}, {}},
      {"keep", {{"keep", "1"}}, {"files"}, Base::one_rank, {{"checkpoint-every", "1"}}},
      {"resume",
       {{"resume", "@/second/checkpoints/step-2"}},
       {"learning rates", "steps", "validated", "first validation", "start", "screen"}},
      {"log-every", {{"log-every", "2"}}, {"screen"}},
      {"quiet", {{"quiet", ""}}, {"screen"}},
      {"final-timeline", {{"final-timeline", "false"}}, {"screen"}},
      {"records", {{"records", "0"}}, {"files"}},
      {"trace", {{"trace", "@/trace.json"}}, {"trace and picture", "screen"}},
      {"svg", {{"svg", "@/step.svg"}}, {"trace and picture", "screen"}},
      {"threads", {{"threads", "2"}}, {"plan", "resources"}},
      {"schedule", {{"schedule", "gpipe"}}, {"plan"}, Base::two_ranks},
      {"chunks", {{"chunks", "3"}}, {"plan"}, Base::two_ranks, {{"schedule", "interleaved"}}},
      {"group-size", {{"group-size", "4"}}, {"plan"}, Base::two_ranks, {{"schedule", "interleaved"}}},
      {"warmup-factor", {{"warmup-factor", "2"}}, {"plan"}, Base::two_ranks, {{"schedule", "2bw"}}},
      {"schedule-file", {{"schedule-file", "@/schedule.csv"}}, {"plan"}, Base::two_ranks},
      {"partition", {{"partition", "1,5"}}, {"plan"}, Base::two_ranks},
      {"profile", {{"profile", "@/other_profile.json"}}, {}, Base::two_ranks},
      {"recompute", {{"recompute", "2,1"}}, {"plan"}, Base::two_ranks},
      {"memory-limit", {{"memory-limit", "1GB"}}, {}},  // refused below what is needed: OptionLimits
      {"device", {{"device", "cpu"}}, {}},
      {"precision", {{"precision", "fp32"}}, {}},
      {"stages", {{"stages", "2"}}, {}, Base::timed},
      {"cost-forward", {{"cost-forward", "2"}}, {"prediction"}, Base::timed},
      {"cost-input", {{"cost-input", "2"}}, {"prediction"}, Base::timed},
      {"cost-weight", {{"cost-weight", "2"}}, {"prediction"}, Base::timed},
      {"cost-comm", {{"cost-comm", "0.5"}}, {"prediction"}, Base::timed},
      {"cost-reduction", {{"cost-reduction", "2"}}, {"plan"}, Base::timed, {{"data-parallel", "2"}}},
      {"cost-send", {{"cost-send", "0.5"}}, {"prediction"}, Base::timed, {{"cost-bandwidth", "1MB/s"}, {"steps", "1"}}},
      {"cost-bandwidth", {{"cost-bandwidth", "1MB/s"}}, {"prediction"}, Base::timed, {{"steps", "1"}}},
      {"ranks-per-host", {{"ranks-per-host", "1"}}, {"prediction"}, Base::timed, {{"latency-inside", "0.5"}}},
      {"link-inside", {{"link-inside", "1MB/s"}}, {"prediction"}, Base::timed, {{"steps", "1"}}},
      {"link-between",
       {{"link-between", "1MB/s"}},
       {"prediction"},
       Base::timed,
       {{"ranks-per-host", "1"}, {"steps", "1"}}},
      {"latency-inside", {{"latency-inside", "0.5"}}, {"prediction"}, Base::timed},
      {"latency-between", {{"latency-between", "0.5"}}, {"prediction"}, Base::timed, {{"ranks-per-host", "1"}}},
      {"cost-fused", {{"cost-fused", "3"}}, {"prediction"}, Base::timed, {{"schedule", "dualpipev"}}},
      {"inject-delay", {{"inject-delay", "action=1"}}, {}},  // what it does: test/kernels, test/pipeline
      {"synchronous-sends", {{"synchronous-sends", ""}}, {}, Base::two_ranks},
  };
  return rows;
}

}  // namespace train_gpt::test

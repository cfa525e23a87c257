// What a run tells: one flushed line per step on rank 0, and one JSON object per event in DIR/log.jsonl.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "commands/run/multiple_choice.h"
#include "commands/run/spikes.h"
#include "pipeline/measure/step_analysis.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

struct StepReport {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  std::int64_t tokens = 0;  // of one step
  StepResult result;
  StepBubble bubble;
  double bubble_predicted = 0;
  std::optional<double> mfu;  // model FLOPs utilisation, a fraction; nothing where the peak is not known
  SpikeDetector::Scores scores;
  std::optional<bool> redone;  // optimistic steps: taken back and done again
};

// The plan event: sizes, choices, predictions and the memory of every rank, as one JSON object.
std::string plan_event(const Plan& plan, const Simulation& predicted, std::optional<double> uniform_makespan);

class RunLog {
 public:
  // Only rank 0 writes. append: a resumed run goes on in the log it finds. Throws std::runtime_error naming the file.
  RunLog(const std::string& directory, bool writes, bool append);

  void text(const std::string& line);  // to people only
  // `uniform_makespan`: of the same schedule cut uniformly, if that was compared.
  void plan(const Plan& plan, const Simulation& predicted, std::optional<double> uniform_makespan);
  void resumed(std::int64_t step, const std::string& checkpoint);
  void step(const StepReport& report);
  // bits_per_byte: nothing where the tokenizer is not known.
  void validation(std::int64_t step, double loss, std::optional<double> bits_per_byte);
  void multiple_choice(std::int64_t step, const MultipleChoiceResult& result);
  // Where the time of one of the last `steps_kept` steps went. To the log alone.
  void measurement(const StepAnalysis& analysis, std::size_t steps_kept, double measuring_share);
  // Empty hash: nothing was computed. redone_steps: how many optimistic steps were done again; none if steps are
  // synchronous.
  void end(const std::string& parameter_hash, double final_loss, std::optional<std::int64_t> redone_steps = {});
  const std::string& path() const { return path_; }

 private:
  void event(const std::string& json);

  bool writes_;
  std::ofstream file_;
  std::string path_;
};

}  // namespace train_gpt

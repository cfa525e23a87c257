#include "commands/cli/other_names.h"

#include <algorithm>
#include <cctype>

#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

std::string small_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Hugging Face, Megatron-LM, nanoGPT, llm.c, torchtitan. Two options may share a name of another project as long as no
// command has both.
constexpr Renaming kOptions[] = {
    {"lr", "learning-rate"},
    {"max-lr", "learning-rate"},
    {"max-steps", "steps"},
    {"num-steps", "steps"},
    {"max-iters", "steps"},
    {"train-iters", "steps"},
    {"output-dir", "output"},
    {"out-dir", "output"},
    {"batch-size", "micro-batch-size"},
    {"per-device-train-batch-size", "micro-batch-size"},
    {"gradient-accumulation-steps", "micro-batches"},
    {"num-microbatches", "micro-batches"},
    {"dp", "data-parallel"},
    {"data-parallel-size", "data-parallel"},
    {"pp", "stages"},
    {"pipeline-model-parallel-size", "stages"},
    {"pipeline-parallel-size", "stages"},
    {"pipeline-schedule", "schedule"},
    {"pp-schedule", "schedule"},
    {"warmup-iters", "warmup-steps"},
    {"lr-warmup-iters", "warmup-steps"},
    {"lr-warmup-steps", "warmup-steps"},
    {"num-warmup-steps", "warmup-steps"},
    {"lr-decay-style", "lr-schedule"},
    {"lr-scheduler", "lr-schedule"},
    {"lr-scheduler-type", "lr-schedule"},
    {"clip-grad", "grad-clip"},
    {"max-grad-norm", "grad-clip"},
    {"gradient-clipping", "grad-clip"},
    {"adam-beta1", "beta1"},
    {"adam-beta2", "beta2"},
    {"adam-eps", "eps"},
    {"adam-epsilon", "eps"},
    {"dtype", "precision"},
    {"n-layer", "layers"},
    {"num-layers", "layers"},
    {"n-head", "heads"},
    {"num-heads", "heads"},
    {"num-attention-heads", "heads"},
    {"n-embd", "hidden"},
    {"hidden-size", "hidden"},
    {"d-model", "hidden"},
    {"vocab-size", "vocab"},
    {"block-size", "seq-len"},
    {"seq-length", "seq-len"},
    {"sequence-length", "seq-len"},
    {"max-position-embeddings", "max-seq-len"},
    {"eval-interval", "val-every"},
    {"eval-steps", "val-every"},
    {"eval-iters", "val-batches"},
    {"log-interval", "log-every"},
    {"logging-steps", "log-every"},
    {"save-every", "checkpoint-every"},
    {"save-interval", "checkpoint-every"},
    {"save-steps", "checkpoint-every"},
    {"save-total-limit", "keep"},
    {"resume-from-checkpoint", "resume"},
    {"random-seed", "seed"},
    {"max-new-tokens", "tokens"},
    {"num-threads", "threads"},
    {"memory-limit", "activation-limit"},  // for simulate; train and plan have their own, in bytes
};

constexpr const char* kRanks = "ranks are what mpirun -n starts: RANKS = pipeline ranks x --data-parallel";
constexpr const char* kNoSplitTensors =
    "a layer is not split over ranks here; pipeline ranks and --data-parallel share the work";
constexpr const char* kCountSteps = "the length of a run is --steps, in updates; the run says how many epochs that is";
constexpr const char* kPrecision = "the number format is --precision fp32 or bf16";

struct Answer {
  const char* name;
  const char* text;
};
constexpr Answer kAnswers[] = {
    {"pp", kRanks},
    {"pipeline-model-parallel-size", kRanks},
    {"pipeline-parallel-size", kRanks},
    {"nproc-per-node", kRanks},
    {"world-size", kRanks},
    {"gpus", kRanks},
    {"tp", kNoSplitTensors},
    {"tensor-parallel", kNoSplitTensors},
    {"tensor-model-parallel-size", kNoSplitTensors},
    {"epochs", kCountSteps},
    {"num-epochs", kCountSteps},
    {"num-train-epochs", kCountSteps},
    {"bf16", kPrecision},
    {"fp16", kPrecision},
    {"fp32", kPrecision},
    {"dropout", "models are trained without dropout here, as llm.c does"},
    {"compile", "nothing is compiled at run time here"},
};

// Keeps letters and digits alone, in lower case.
std::string squeezed(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) text.push_back(c);
  }
  return small_letters(text);
}

// Class names of torch.distributed.pipelining, without their "Schedule".
const std::vector<Renaming> kSchedules = {{"interleaved1f1b", "interleaved"},
                                          {"loopedbfs", "breadth-first"},
                                          {"interleavedzerobubble", "interleaved-zb"},
                                          {"zbvzerobubble", "zb-v"},
                                          {"onefoneb", "1f1b"}};

}  // namespace

std::string canonical_option(const std::string& word) {
  if (!word.starts_with("--")) return word;
  const std::size_t end = std::min(word.find('='), word.size());
  std::string name = small_letters(word.substr(0, end));
  std::replace(name.begin(), name.end(), '_', '-');
  return name + word.substr(end);
}

std::vector<std::string> other_names_of(const std::string& option) {
  std::vector<std::string> names;
  for (const Renaming& it : kOptions) {
    if (option == it.ours) names.emplace_back(it.theirs);
  }
  return names;
}

std::string instead_of(const std::string& option) {
  const auto* found = std::find_if(std::begin(kAnswers), std::end(kAnswers),
                                   [&](const Answer& answer) { return option == answer.name; });
  return found == std::end(kAnswers) ? "" : found->text;
}

std::string canonical_schedule(const std::string& name) {
  std::string squeezed_name = squeezed(name);
  if (squeezed_name.starts_with("schedule")) squeezed_name.erase(0, std::string("schedule").size());
  squeezed_name = squeezed(renamed(squeezed_name, kSchedules));
  for (const std::string& known : schedule_names()) {
    if (squeezed(known) == squeezed_name) return known;
  }
  if (squeezed_name == "pipedream2bw") return "2bw";
  return squeezed_name == "auto" || squeezed_name == "all" ? squeezed_name : name;
}

std::string renamed(const std::string& name, const std::vector<Renaming>& theirs) {
  std::string small = small_letters(name);
  for (const Renaming& it : theirs) {
    if (small == it.theirs) return it.ours;
  }
  return small;
}

}  // namespace train_gpt

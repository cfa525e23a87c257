#include "commands/commands.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>
#include <stdexcept>

#include "commands/run/ids_as_text.h"
#include "commands/run/run_tokenizer.h"
#include "commands/run/session.h"
#include "commands/run/setup.h"
#include "commands/run/told.h"
#include "pipeline/draw/markup.h"
#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

// A plan for one row at a time.
Plan generation_plan(const Options& options, const ModelConfig& model, int p, const Device& device) {
  Options one = options;
  one.batch.micro_batch_size = 1;
  one.batch.micro_batches = 1;
  one.batch.seq_len = std::min<std::int64_t>(model.max_seq_len, 1024);
  const Schedule schedule = make_schedule({.name = "gpipe", .ranks = p, .micro_batches = 1});
  PlanRequest request = plan_request(one, model, schedule, device);
  request.partition = uniform_partition(model, p);
  request.training = false;
  request.caches = device.rows_stand_alone();
  return make_plan(request);
}

// Prints on rank 0; every rank makes the same calls.
class Output {
 public:
  explicit Output(const Session& session) : shows_(session.is_first()) {}
  // Shows whole characters, control characters escaped, since a model may generate any.
  void show(const std::string& piece) const {
    if (!shows_) return;
    const std::string text = printable(piece);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

 private:
  bool shows_;
};

// Continues a prompt until the count, the end of the text, or --stop.
void go_on(Trainer& trainer, const Options& options, const Tokenizer* tokenizer, std::int64_t vocab,
           const std::string& prompt, const Output& output) {
  const GenerateOptions& wanted = options.generate;
  IdsAsText text(tokenizer, vocab);
  StopText stop(wanted.stop);
  const Sampling sampling{.temperature = wanted.temperature, .top_k = wanted.top_k, .top_p = wanted.top_p};
  trainer.generate(text.prompt(prompt), wanted.tokens, sampling, options.data.seed, [&](std::int32_t id) {
    if (tokenizer != nullptr && id == tokenizer->end_of_text() && !wanted.ignore_eos) return false;
    output.show(stop.push(text.push(id)));
    return !stop.found();
  });
  if (!stop.found()) output.show(stop.push(text.finish()) + stop.finish());
  output.show("\n");
}

// Continues each line of the input until it ends. Rank 0 reads, and tells the others.
void go_on_from_lines(Trainer& trainer, Session& session, const Options& options, const Tokenizer* tokenizer,
                      std::int64_t vocab, const Output& output) {
  output.show("This model goes on with what is typed; it was not taught to answer. Ctrl-D ends.\n");
  while (true) {
    output.show("> ");
    std::string line;
    const bool ended = session.is_first() && !std::getline(std::cin, line);
    const std::string told = told_by_first(session.world(), ended ? "" : "+" + line);
    if (told.empty()) break;
    try {
      go_on(trainer, options, tokenizer, vocab, told.substr(1), output);
    } catch (const std::invalid_argument& error) {  // the line is no list of ids
      output.show(std::string(error.what()) + "\n");
    }
  }
  output.show("\n");
}

}  // namespace

int run_generate(const Options& options) {
  Session session(options);
  try {
    const std::string init = agreed_init_file(session, options);
    ModelConfig model;
    std::optional<Tokenizer> tokenizer;
    Plan plan;
    session.together([&] {
      model = ModelFile(init).config();
      const std::string& named = options.generate.tokenizer;
      tokenizer = named.empty() ? tokenizer_of_model(init, model) : tokenizer_named(named);
      IdsAsText(tokenizer ? &*tokenizer : nullptr, model.vocab).prompt(options.generate.prompt);  // throws if wrong
      plan = generation_plan(options, model, session.world().size(), session.device());
    });
    Groups groups = make_groups(session.world(), make_layout(session.world().size(), 1), plan);
    std::unique_ptr<Trainer> trainer;
    session.together([&] {
      trainer = std::make_unique<Trainer>(session.device(), groups, plan, OptimizerSettings{});
      trainer->load(ModelFile(init));
    });
    require_finite(session, *trainer, options.model.init_file);
    trainer->open();
    if (!plan.request.caches && session.is_first()) {
      std::fprintf(stderr,
                   "note: the cuda device keeps no keys and values: every token computes the whole text anew\n");
    }
    const Output output(session);
    const Tokenizer* known = tokenizer ? &*tokenizer : nullptr;
    if (options.generate.interactive) {
      go_on_from_lines(*trainer, session, options, known, model.vocab, output);
      return 0;
    }
    output.show(options.generate.prompt + (tokenizer ? "" : " "));
    go_on(*trainer, options, known, model.vocab, options.generate.prompt, output);
    return 0;
  } catch (const std::exception& error) {
    session.end_job(error);
  }
}

}  // namespace train_gpt

#include "commands/commands.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "commands/run/session.h"
#include "commands/run/setup.h"
#include "data/byte_tokenizer.h"
#include "pipeline/draw/markup.h"
#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

// The prompt as ids: bytes behind an end of text for byte-level models, else numbers.
std::vector<std::int32_t> prompt_ids(const std::string& prompt, const ModelConfig& model) {
  std::vector<std::int32_t> ids;
  if (is_byte_level(model.vocab)) {
    ids = encode_bytes(prompt);
    ids.insert(ids.begin(), kByteEndOfText);
    return ids;
  }
  std::istringstream words(prompt);
  std::string word;
  while (words >> word) {
    std::size_t used = 0;
    long id = -1;
    try {
      id = std::stol(word, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used != word.size() || id < 0 || id >= model.vocab) {
      throw std::invalid_argument("--prompt '" + word + "': this model's vocabulary of " + std::to_string(model.vocab) +
                                  " is not byte-level, so the prompt is a list of ids 0 .. " +
                                  std::to_string(model.vocab - 1));
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
  if (ids.empty()) ids.push_back(0);
  return ids;
}

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
  return make_plan(request);
}

}  // namespace

int run_generate(const Options& options) {
  Session session(options);
  try {
    ModelConfig model;
    std::vector<std::int32_t> ids;
    Plan plan;
    session.together([&] {
      if (options.model.init_file.empty()) {
        throw std::invalid_argument(
            "generate needs a model: --init FILE, such as model.bin of a run, or the folder of a run or checkpoint");
      }
      model = ModelFile(init_model_file(options)).config();
      ids = prompt_ids(options.generate.prompt, model);
      plan = generation_plan(options, model, session.world().size(), session.device());
    });
    Groups groups = make_groups(session.world(), make_layout(session.world().size(), 1), plan);
    std::unique_ptr<Trainer> trainer;
    session.together([&] {
      trainer = std::make_unique<Trainer>(session.device(), groups, plan, OptimizerSettings{});
      trainer->load(ModelFile(init_model_file(options)));
    });
    require_finite(session, *trainer, options.model.init_file);
    trainer->open();
    const Sampling sampling{
        .temperature = options.generate.temperature, .top_k = options.generate.top_k, .top_p = options.generate.top_p};
    const bool bytes = is_byte_level(model.vocab);
    ByteDecoder decoder;
    const auto show = [&](const std::string& piece) {  // whole characters, among which a model may put any
      if (!session.is_first()) return;
      const std::string text = printable(piece);
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
    show(options.generate.prompt + (bytes ? "" : " "));
    trainer->generate(ids, options.generate.tokens, sampling, options.data.seed,
                      [&](std::int32_t id) { show(bytes ? decoder.push(id) : std::to_string(id) + " "); });
    show((bytes ? decoder.finish() : "") + "\n");
    return 0;
  } catch (const std::exception& error) {
    session.end_job(error);
  }
}

}  // namespace train_gpt

#include "commands/commands.h"

#include <cstdio>

#include "commands/run/session.h"
#include "commands/run/setup.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/planner/unit_profile.h"

namespace train_gpt {

int run_profile(const Options& options) {
  Session session(options);
  try {
    ModelConfig model;
    session.together([&] {
      model = model_config(options);
      check_positions(options, model);
      const std::int64_t ranks_here = session.host().ranks;
      const std::int64_t bytes = ranks_here * largest_unit_bytes(model, options.batch.micro_batch_size,
                                                                 options.batch.seq_len, session.device().precision());
      if (session.host_memory() > 0 && bytes > session.host_memory()) {
        throw std::invalid_argument("measuring the largest unit on " + std::to_string(ranks_here) +
                                    " ranks of one host at once needs " + format_bytes(bytes) + ", and that host has " +
                                    format_bytes(session.host_memory()) +
                                    ": lower --hidden, --vocab, --micro-batch-size or --seq-len");
      }
    });
    const Profile profile =
        measure_profile(session.device(), session.world(), session.world().size(), model,
                        options.batch.micro_batch_size, options.batch.seq_len, ProfileEffort::thorough());
    session.together([&] {
      if (!session.is_first()) return;
      std::printf("%s\n%s", session.resources().c_str(), profile_table(profile).c_str());
      if (options.pipeline.profile.empty()) return;
      save_profile(profile, options.pipeline.profile);
      std::printf("written to %s: give it to train and plan as --profile %s\n", options.pipeline.profile.c_str(),
                  options.pipeline.profile.c_str());
    });
    return 0;
  } catch (const std::exception& error) {
    session.end_job(error);
  }
}

}  // namespace train_gpt

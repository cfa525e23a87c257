#include <algorithm>
#include <set>

#include "commands/cli/help.h"
#include "commands/cli/options_table.h"
#include "commands/cli/other_names.h"
#include "commands/cli/version.h"
#include "pipeline/schedule/catalog.h"
#include "test/commands/cli/parse_line.h"
#include "test/refused.h"

namespace train_gpt {
namespace {

TEST(Options, TrainIsTheDefaultCommand) {
  EXPECT_EQ(parse("").command, Command::train);
  EXPECT_EQ(parse("--steps 3").command, Command::train);
  EXPECT_EQ(parse("--steps 3").run.steps, 3);
  EXPECT_EQ(parse("train"), [] {
    Options options;
    options.command_named = true;
    return options;
  }());
}

TEST(Options, EveryDefaultInHelpIsTheDefault) {
  for (const OptionSpec& spec : option_table()) {
    if (spec.default_value == nullptr) continue;
    Options options;
    spec.set(options, OptionValue(spec.name, spec.default_value));
    options.batch.micro_batches_given = false;
    options.costs.given = options.costs.cluster_given = false;
    EXPECT_EQ(options, Options{}) << spec.name;
  }
}

TEST(Options, EveryOptionChangesSomething) {
  for (const OptionSpec& spec : option_table()) {
    Options options;
    options.command = spec.belongs_to(Command::simulate) ? Command::simulate : Command::train;
    const Options before = options;
    std::string changed;
    for (const char* text : {"",         "1",      "2",          "7",    "0.5",      "false",
                             "d12",      "linear", "optimistic", "muon", "spectral", "error-feedback",
                             "replicas", "cpu",    "fp32",       "span", "gpipe",    "uniform",
                             "auto",     "300"}) {
      try {
        spec.set(options, OptionValue(spec.name, text));
        changed = text;
      } catch (const std::invalid_argument&) {
        continue;
      }
      if (options != before) break;
    }
    EXPECT_NE(options, before) << spec.name << " " << changed;
  }
}

TEST(Options, NoCommandHasTwoOptionsOfOneName) {
  for (const CommandSpec& command : command_table()) {
    const std::vector<std::string> names = option_names(command.command);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size()) << command.name;
  }
}

TEST(Options, ValuesFollowASpaceOrAnEqualsSign) {
  EXPECT_FALSE(parse("--shuffle false").data.shuffle);
  EXPECT_FALSE(parse("--shuffle=false").data.shuffle);
  EXPECT_TRUE(parse("--shuffle true").data.shuffle);
  EXPECT_EQ(parse("generate --init m.bin --prompt=--odd").generate.prompt, "--odd");
  EXPECT_EQ(parse("generate --init m.bin --prompt=a=b").generate.prompt, "a=b");
  const std::string prompt = "two\nlines = " + std::string(300000, 'x');
  EXPECT_EQ(parse_options({"generate", "--init", "m.bin", "--prompt=" + prompt}).generate.prompt, prompt);
  EXPECT_EQ(parse_options({"generate", "--init", "m.bin", "--prompt", prompt}).generate.prompt, prompt);
  EXPECT_EQ(parse("generate --init m.bin --prompt=").generate.prompt, "");
}

// A number alone, however it is written, counts steps.
TEST(Options, CheckpointsComeByStepsOrByTime) {
  const auto run = [](const std::string& value) { return parse_options({"train", "--checkpoint-every", value}).run; };
  for (const auto& [value, steps] : {std::pair{"0", 0}, {"7", 7}, {"1e3", 1000}, {"10k", 10000}}) {
    EXPECT_EQ(run(value).checkpoint_every, steps) << value;
    EXPECT_EQ(run(value).checkpoint_seconds, 0) << value;
  }
  for (const auto& [value, seconds] : {std::pair{"90s", 90}, {"15min", 900}, {"1h30m", 5400}}) {
    EXPECT_EQ(run(value).checkpoint_every, 0) << value;
    EXPECT_EQ(run(value).checkpoint_seconds, seconds) << value;
  }
  EXPECT_REFUSED(run("often"), "--checkpoint-every", "'often'");
}

TEST(Options, ReadsEveryGroup) {
  const Options options = parse(
      "--train-data a*.bin --val-data b.bin --seed 18446744073709551615 --layers 3 --heads 2 --hidden 64 --tied false "
      "--vocab 257 --max-seq-len 512 --seq-len 64 --micro-batch-size 2 --micro-batches 6 --data-parallel 2 "
      "--accumulation-groups 4 --learning-rate 1e-4 --lr-schedule wsd --warmup-steps 5 --min-lr-fraction 0 --beta2 "
      ".999 "
      "--grad-clip 0 --optimizer-step optimistic --steps 40 --val-every 0 --keep 1 --resume latest --threads 2 "
      "--schedule "
      "interleaved --chunks 3 --group-size 4 --partition 3,1,4 --recompute 1,0,2 --memory-limit 1.5GiB --device timed "
      "--precision bf16 --cost-forward 1,2.5 --cost-comm 0.1 --stages 2 --inject-delay x --synchronous-sends");
  EXPECT_EQ(options.data.train_data, "a*.bin");
  EXPECT_EQ(options.data.seed, 18446744073709551615ULL);
  EXPECT_EQ(options.model.layers, 3);
  EXPECT_FALSE(options.model.tied);
  EXPECT_EQ(options.model.vocab, 257);
  EXPECT_EQ(options.batch.rows(), 24);
  EXPECT_EQ(options.optimizer.learning_rate, 1e-4);
  EXPECT_EQ(options.optimizer.lr_schedule, LearningRateShape::wsd);
  EXPECT_EQ(options.optimizer.beta2, 0.999);
  EXPECT_EQ(options.optimizer.optimizer_step, OptimizerStep::optimistic);
  EXPECT_EQ(options.run.resume, "latest");
  EXPECT_EQ(options.pipeline.schedule(), "interleaved");
  EXPECT_EQ(options.pipeline.chunks, 3);
  EXPECT_EQ(options.pipeline.partition, (PartitionOption{PartitionOption::Kind::list, {3, 1, 4}}));
  EXPECT_EQ(options.pipeline.recompute, (RecomputeOption{RecomputeOption::Kind::list, {1, 0, 2}}));
  EXPECT_EQ(options.pipeline.memory_limit, std::int64_t{3} << 29);
  EXPECT_EQ(options.device.device, DeviceKind::timed);
  EXPECT_EQ(options.device.precision, Precision::bf16);
  EXPECT_EQ(options.costs.costs.forward, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(options.costs.costs.input, std::vector<double>{1});
  EXPECT_EQ(options.costs.costs.latency, std::vector<double>{0.1});
  EXPECT_TRUE(options.costs.given);
  EXPECT_TRUE(options.testing.synchronous_sends);
}

TEST(Options, OneNameMeansWhatTheCommandMeans) {
  const Options prepare = parse("prepare --text *.txt --output a.bin");
  EXPECT_EQ(prepare.prepare.output, "a.bin");
  EXPECT_EQ(prepare.run.output, "");
  EXPECT_EQ(parse("--output here").run.output, "here");
  EXPECT_EQ(parse("simulate --stages 4 --memory-limit 2.5").simulate.memory_limit, std::vector<double>{2.5});
  EXPECT_EQ(parse("simulate --stages 4 --activation-limit 2.5").simulate.memory_limit, std::vector<double>{2.5});
  EXPECT_REFUSED(parse("simulate --stages 4 --memory-limit 80GB"), "size in bytes", "activations", "plan");
  EXPECT_REFUSED(parse("--warmup-steps 100 --steps 2"), "--warmup-steps 100 is more than --steps 2");
  EXPECT_REFUSED(parse("--quiet --log-every 3"), "--quiet and --log-every contradict");
  EXPECT_EQ(parse("--memory-limit 80GB").pipeline.memory_limit, 80000000000);
  EXPECT_EQ(parse("simulate --stages 4 --svg a.svg").simulate.svg, "a.svg");
  EXPECT_EQ(parse("--svg a.svg").run.svg, "a.svg");
  EXPECT_EQ(parse("--init random").model.init_file, "");
  EXPECT_EQ(parse("--init gpt2.bin").model.init_file, "gpt2.bin");
  EXPECT_EQ(parse("status here").run.output, "here");
  EXPECT_EQ(parse("status").run.output, "") << "out/latest";
}

TEST(Options, UnderstandsOtherTrainersNames) {
  const Options theirs = parse(
      "--Train_Data a.bin --lr 1e-3 --max-steps 2k --output-dir here --batch-size 2 --global-batch-size 24 --dp 3 "
      "--dtype bfloat16 --model GPT2-XL --pipeline_schedule ScheduleInterleaved1F1B --max_grad_norm 2 --MAX_SEQ_LEN "
      "1e3 "
      "--lr-scheduler Linear --tied False --Partition Uniform");
  const Options ours = parse(
      "--train-data a.bin --learning-rate 1e-3 --steps 2000 --output here --micro-batch-size 2 --global-batch-size 24 "
      "--data-parallel 3 --precision bf16 --model d48 --schedule interleaved --grad-clip 2 --max-seq-len 1000 "
      "--lr-schedule linear --tied false --partition uniform");
  EXPECT_EQ(theirs, ours);
  EXPECT_EQ(ours.batch.micro_batches, 4) << "24 rows of 2 x 3";
  EXPECT_EQ(parse("simulate --pp 4").costs.stages, 4);
  EXPECT_REFUSED(parse("--pp 4"), "--stages", "mpirun -n", "--data-parallel");
  EXPECT_REFUSED(parse("--tp 2"), "not split over ranks");
  EXPECT_REFUSED(parse("--epochs 2"), "--steps");
  EXPECT_REFUSED(parse("--precision fp16"), "fp32 or bf16");
  EXPECT_REFUSED(parse("--lr 1 --learning-rate 2"), "--learning-rate is given twice");
  EXPECT_REFUSED(parse("--lr"), "--learning-rate needs a value (X)");
}

TEST(Options, OtherNamesLeadToOneOptionEach) {
  for (const CommandSpec& command : command_table()) {
    std::set<std::string> names;
    for (const OptionSpec& spec : option_table()) {
      if (!spec.belongs_to(command.command)) continue;
      EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
      for (const std::string& other : other_names_of(spec.name)) EXPECT_TRUE(names.insert(other).second) << other;
    }
  }
}

TEST(Options, SchedulesAreKnownByPyTorchsNamesInAnySpelling) {
  const std::vector<std::pair<const char*, const char*>> names = {{"ScheduleGPipe", "gpipe"},
                                                                  {"Schedule1F1B", "1f1b"},
                                                                  {"ScheduleInterleaved1F1B", "interleaved"},
                                                                  {"ScheduleLoopedBFS", "breadth-first"},
                                                                  {"ScheduleInterleavedZeroBubble", "interleaved-zb"},
                                                                  {"ScheduleZBVZeroBubble", "zb-v"},
                                                                  {"ScheduleDualPipeV", "dualpipev"},
                                                                  {"ZB_H1", "zb-h1"},
                                                                  {"zbv", "zb-v"},
                                                                  {"GPIPE", "gpipe"},
                                                                  {"1F1B", "1f1b"},
                                                                  {"Auto", "auto"}};
  for (const auto& [theirs, ours] : names) {
    EXPECT_EQ(parse(std::string("--schedule ") + theirs).pipeline.schedule(), ours) << theirs;
  }
  EXPECT_TRUE(parse("simulate --stages 4 --schedule ALL").pipeline.all_schedules);
  EXPECT_REFUSED(parse("--schedule ScheduleSomething"), "'ScheduleSomething' is not known");
}

TEST(Options, TheGlobalBatchSetsTheNumberOfMicroBatches) {
  EXPECT_EQ(parse("--global-batch-size 64").batch.micro_batches, 16);
  EXPECT_TRUE(parse("--global-batch-size 64").batch.micro_batches_given);
  EXPECT_EQ(parse("plan --stages 2 --global-batch-size 64 --dp 2").batch.micro_batches, 8);
  EXPECT_REFUSED(parse("--global-batch-size 30"), "--global-batch-size 30 is not a multiple of 4 rows",
                 "give 28 or 32");
  EXPECT_REFUSED(parse("--global-batch-size 2"), "give 4");
  EXPECT_REFUSED(parse("--global-batch-size 64 --micro-batches 16"),
                 "--global-batch-size and --micro-batches contradict");
}

TEST(Options, HelpAndVersionAreAskedForInEveryUsualWay) {
  EXPECT_TRUE(parse("help").help);
  EXPECT_FALSE(parse("help").command_named);
  EXPECT_EQ(parse("help simulate").command, Command::simulate);
  EXPECT_TRUE(parse("help simulate").help);
  EXPECT_TRUE(parse("simulate --HELP").help);
  EXPECT_TRUE(parse("-h").help);
  EXPECT_TRUE(parse("--version").version);
  EXPECT_TRUE(parse("train --version").version);
  EXPECT_FALSE(parse("").version);
  EXPECT_EQ(version_text().find(std::string("train_gpt ") + kVersion + "\n"), 0U);
}

TEST(Options, SimulateTakesSeveralSchedules) {
  EXPECT_EQ(parse("simulate --stages 4 --schedule 1f1b,zb-h1,auto").pipeline.schedules,
            (std::vector<std::string>{"1f1b", "zb-h1", "auto"}));
  const PipelineOptions all = parse("simulate --stages 4 --schedule all --chunks 4 --group-size 8").pipeline;
  EXPECT_TRUE(all.all_schedules);
  EXPECT_EQ(all.schedules, schedule_names());
  EXPECT_EQ(all.chunks_for("interleaved"), 4);
  EXPECT_EQ(all.chunks_for("1f1b"), 0);
  EXPECT_EQ(all.chunks_for("zb-v"), 0);
  EXPECT_EQ(all.group_size_for("interleaved"), 8);
  EXPECT_EQ(all.group_size_for("gpipe"), 0);
  EXPECT_EQ(parse("--schedule zb-v --chunks 2").pipeline.chunks_for("zb-v"), 2);
  EXPECT_REFUSED(parse("--schedule 1f1b,gpipe"), "--schedule", "only simulate");
  EXPECT_REFUSED(parse("--schedule all"), "--schedule: 'all'", "only simulate");
  EXPECT_REFUSED(parse("simulate --stages 4 --schedule all,1f1b"), "all alone");
  EXPECT_REFUSED(parse("simulate --stages 4 --schedule 1f1b,,gpipe"), "empty place");
}

TEST(Help, IsCompleteForEveryCommand) {
  for (const CommandSpec& command : command_table()) {
    const Options options = parse(std::string(command.name) + " --help");
    EXPECT_TRUE(options.help);
    const std::string text = help_text(options);
    for (const OptionSpec& spec : option_table()) {
      const bool listed = text.find(std::string("--") + spec.name + " ") != std::string::npos ||
                          text.find(std::string("--") + spec.name + "\n") != std::string::npos;
      EXPECT_TRUE(listed || !spec.belongs_to(command.command)) << command.name << " " << spec.name;
    }
    EXPECT_NE(text.find(command.name), std::string::npos);
  }
}

TEST(Help, WinsOverMistakesAndListsCommands) {
  const Options options = parse("--stpes 4 --help");
  EXPECT_TRUE(options.help);
  const std::string text = help_text(options);
  for (const CommandSpec& command : command_table()) {
    EXPECT_NE(text.find(std::string("\n  ") + command.name + " "), std::string::npos) << command.name;
  }
  EXPECT_NE(text.find("Optimizer options:"), std::string::npos);
  EXPECT_NE(text.find("(default: 1f1b)"), std::string::npos);
  EXPECT_EQ(text.find("--ascii"), std::string::npos) << "an option of simulate";
}

}  // namespace
}  // namespace train_gpt

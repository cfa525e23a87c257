#include "commands/cli/options.h"

#include <algorithm>
#include <set>

#include "commands/cli/help.h"
#include "commands/cli/options_table.h"
#include "commands/cli/other_names.h"
#include "commands/cli/version.h"
#include "pipeline/schedule/catalog.h"
#include "test/refused.h"

namespace train_gpt {
namespace {

// The words of a command line, split at spaces.
Options parse(const std::string& line) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  while (begin < line.size()) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    if (end > begin) words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return parse_options(words);
}

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
    options.costs.given = false;
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

TEST(OptionsRefused, WordsThatAreNoOptions) {
  EXPECT_REFUSED(parse("tran --steps 3"), "'tran' is not a command", "did you mean train?", "simulate");
  EXPECT_REFUSED(parse("tokens.bin"), "'tokens.bin' is not a command", "quote patterns");
  EXPECT_REFUSED(parse("--train-data a.bin b.bin"), "unexpected word 'b.bin'", "Quote patterns", "'data/*.bin'");
  EXPECT_REFUSED(parse("--steps 3 simulate"), "the command comes first", "train_gpt simulate");
  EXPECT_REFUSED(parse("-steps 3"), "'-steps'", "two dashes");
  EXPECT_REFUSED(parse("-n 3"), "'-n'", "two dashes");
  EXPECT_REFUSED(parse("--steps 3 --"), "unexpected word '--'");
  EXPECT_REFUSED(parse_options({"--steps", "3", ""}), "unexpected word ''");
  EXPECT_REFUSED(parse("status a b"), "unexpected word 'b'");
}

TEST(OptionsRefused, UnknownOptions) {
  EXPECT_REFUSED(parse("--learning-rat 1"), "--learning-rat", "did you mean --learning-rate?");
  EXPECT_REFUSED(parse("--trian_data a"), "did you mean --train-data?");
  EXPECT_REFUSED(parse("--sched gpipe"), "did you mean --schedule?");
  EXPECT_REFUSED(parse("--xyzzyx 1"), "unknown option --xyzzyx;", "train_gpt train --help");
  EXPECT_REFUSED(parse("--ascii"), "--ascii is not an option of train, but of simulate");
  EXPECT_REFUSED(parse("simulate --stages 4 --steps 3"), "--steps is not an option of simulate, but of train");
  EXPECT_REFUSED(parse("prepare --init a"), "--init", "train, evaluate, plan, profile, convert or generate");
  EXPECT_REFUSED(parse("---steps 3"), "---steps");
  EXPECT_REFUSED(parse("--=3"), "unknown option --");
}

TEST(OptionsRefused, MissingSuperfluousAndRepeatedValues) {
  EXPECT_REFUSED(parse("--steps"), "--steps needs a value (N)");
  EXPECT_REFUSED(parse("--train-data --shuffle false"), "--train-data needs a value (GLOB)", "'--shuffle' follows",
                 "--train-data=VALUE");
  EXPECT_REFUSED(parse("--shuffle"), "--shuffle needs a value (true|false)");
  EXPECT_REFUSED(parse("simulate --stages 4 --json=yes"), "--json takes no value", "'yes'");
  EXPECT_REFUSED(parse("simulate --stages 4 --json yes"), "unexpected word 'yes'");
  EXPECT_REFUSED(parse("--steps 3 --steps 4"), "--steps is given twice");
  EXPECT_REFUSED(parse("--output="), "--output: ''", "empty");
  EXPECT_REFUSED(parse("--steps="), "--steps: '' is not a whole number");
}

TEST(OptionsRefused, NumbersThatAreNoneOrOutOfRange) {
  EXPECT_REFUSED(parse("--steps 5x"), "--steps: '5x' is not a whole number; give 1 to");
  EXPECT_REFUSED(parse("--steps 1.5"), "--steps: '1.5' is not a whole number");
  EXPECT_REFUSED(parse("--steps 0"), "--steps: '0' is out of range");
  EXPECT_REFUSED(parse("--steps -1"), "--steps: '-1' is out of range");
  EXPECT_REFUSED(parse("--steps 99999999999999999999"), "--steps", "is out of range");
  EXPECT_REFUSED(parse("--micro-batches 4294967304"), "--micro-batches", "out of range; give 1 to 1048576");
  EXPECT_REFUSED(parse("--seed -1"), "--seed", "0 or more");
  EXPECT_REFUSED(parse("--threads 100000"), "--threads", "1 to 1024");
  EXPECT_REFUSED(parse("--learning-rate fast"), "--learning-rate: 'fast' is not a number; give 0 or more");
  EXPECT_REFUSED(parse("--learning-rate nan"), "--learning-rate", "is not a number");
  EXPECT_REFUSED(parse("--learning-rate inf"), "--learning-rate", "is not a number");
  EXPECT_REFUSED(parse("--learning-rate 1e-3,"), "--learning-rate", "is not a number");
  EXPECT_REFUSED(parse("--learning-rate -1"), "--learning-rate", "out of range");
  EXPECT_REFUSED(parse("--beta1 1"), "--beta1: '1' is out of range", "less than 1");
  EXPECT_REFUSED(parse("--beta2 -0.1"), "--beta2");
  EXPECT_REFUSED(parse("--eps 0"), "--eps", "more than 0");
  EXPECT_REFUSED(parse("--min-lr-fraction 1.5"), "--min-lr-fraction", "give 0 to 1");
  EXPECT_REFUSED(parse("simulate --stages 4 --weight-memory 2"), "--weight-memory", "0 to 1");
  EXPECT_REFUSED(parse("simulate --stages 4 --cost-forward 1,1e308,1,1"), "--cost-forward", "'1e308'");
  EXPECT_REFUSED(parse("simulate --stages 4 --cost-comm 1e300"), "--cost-comm", "0 to 1e+12");
  EXPECT_REFUSED(parse("simulate --stages 4 --cost-bandwidth 0"), "--cost-bandwidth", "1e-09 to 1e+12");
  EXPECT_REFUSED(parse("simulate --stages 4 --schedule auto --memory-limit 1e300"), "--activation-limit", "1000000");
  EXPECT_REFUSED(parse("--partition 5,4,0"), "--partition: '0' is out of range; give 1 or more");
  EXPECT_REFUSED(parse("--partition 5,,4"), "--partition: '5,,4' has an empty place");
  EXPECT_REFUSED(parse("--partition even"), "--partition: 'even'", "measured, uniform", "5,4,4,5");
  EXPECT_REFUSED(parse("--recompute some"), "--recompute: 'some'", "none, auto");
  EXPECT_REFUSED(parse("simulate --stages 4 --cost-forward 1,-2"), "--cost-forward: '-2' is out of range");
  EXPECT_REFUSED(parse("--memory-limit 80G"), "--memory-limit: '80G'", "80GB");
  EXPECT_REFUSED(parse("--memory-limit xGB"), "--memory-limit: 'xGB' is not a number of bytes");
  EXPECT_REFUSED(parse("--memory-limit -1"), "--memory-limit", "1 byte or more");
  EXPECT_REFUSED(parse("--memory-limit 1e300TB"), "--memory-limit", "out of range");
  EXPECT_REFUSED(
      parse("--seq-len 1000000000 --max-seq-len 1000000000 --micro-batch-size 1000000000 --micro-batches 64"),
      "2^63 tokens");
}

TEST(OptionsRefused, NamesThatAreNotKnown) {
  EXPECT_REFUSED(parse("--shuffle no"), "--shuffle: 'no' is not known; give true or false");
  EXPECT_REFUSED(parse("--device gpu"), "--device: 'gpu'", "auto, cpu, cuda or timed");
  EXPECT_REFUSED(parse("--precision fp23"), "--precision", "did you mean fp32?");
  EXPECT_REFUSED(parse("--lr-schedule cosin"), "--lr-schedule", "cosin", "constant, cosine, linear");
  EXPECT_REFUSED(parse("--schedule 1b1f"), "--schedule: '1b1f'", "did you mean 1f1b?", "auto or 2bw");
  EXPECT_REFUSED(parse("--model d7"), "d7", "d6", "d48");
}

TEST(OptionsRefused, ContradictoryModels) {
  EXPECT_REFUSED(parse("--model d6 --layers 3 --heads 2 --hidden 64"), "--model and --layers contradict");
  EXPECT_REFUSED(parse("--hidden 64"), "--hidden alone", "--layers, --heads and --hidden together");
  EXPECT_REFUSED(parse("--layers 2 --heads 3 --hidden 64"), "--heads 3", "--hidden 64", "try --heads 2 or 4");
  EXPECT_REFUSED(parse("--init gpt2.bin --model d12"), "--model and --init gpt2.bin contradict",
                 "the file gives the sizes");
  EXPECT_REFUSED(parse("--vocab 257 --init gpt2.bin"), "--vocab and --init gpt2.bin contradict");
  EXPECT_REFUSED(parse("--seq-len 2048"), "--seq-len 2048 exceeds --max-seq-len 1024");
  EXPECT_REFUSED(parse("--max-seq-len 128"), "--seq-len 256 exceeds --max-seq-len 128");
  EXPECT_EQ(parse("--init gpt2.bin --seq-len 2048").batch.seq_len, 2048);
}

TEST(OptionsRefused, ContradictorySchedules) {
  EXPECT_REFUSED(parse("--schedule gpipe --schedule-file a.csv"), "--schedule and --schedule-file contradict");
  EXPECT_REFUSED(parse("--chunks 2 --schedule-file a.csv"), "--chunks and --schedule-file contradict");
  EXPECT_REFUSED(parse("--chunks 2"), "--chunks 2 is not possible", "--schedule 1f1b has 1 per rank");
  EXPECT_REFUSED(parse("--schedule zb-v --chunks 3"), "--chunks 3", "--schedule zb-v has 2 per rank");
  EXPECT_EQ(parse("--schedule auto --chunks 2,5").pipeline.auto_chunks, (std::vector<int>{2, 5}));
  EXPECT_REFUSED(parse("--schedule auto --chunks 43"), "--chunks 43", "at most 42");
  EXPECT_REFUSED(parse("--schedule interleaved --chunks 2,4"), "--chunks", "auto alone");
  EXPECT_REFUSED(parse("--schedule gpipe --group-size 4"), "--group-size", "--schedule gpipe",
                 "interleaved or interleaved-zb");
  EXPECT_REFUSED(parse("--cost-reduction 1 --data-parallel 2"), "--cost-reduction", "--device timed");
  EXPECT_REFUSED(parse("--rank-order replicas"), "--rank-order replicas", "--data-parallel 2");
  EXPECT_REFUSED(parse("--zero 1"), "--zero 1", "--data-parallel 2");
  EXPECT_REFUSED(parse("--zero 4 --data-parallel 2"), "--zero");
  EXPECT_REFUSED(parse("--zero 3 --data-parallel 2 --optimizer-step optimistic"), "--zero 3",
                 "--optimizer-step optimistic", "--zero 2");
  EXPECT_EQ(parse("--zero 3 --data-parallel 2 --optimizer muon").batch.zero, 3);
  EXPECT_REFUSED(parse("--accumulation-groups 3"), "--accumulation-groups 3", "power of two");
  EXPECT_REFUSED(parse("--data-parallel 4 --accumulation-groups 2"), "--accumulation-groups 2", "--data-parallel 4");
}

TEST(OptionsRefused, OptionsThatWouldBeIgnored) {
  EXPECT_REFUSED(parse("--val-every 3"), "--val-every needs --val-data");
  EXPECT_REFUSED(parse("--val-batches 3"), "--val-batches needs --val-data");
  EXPECT_REFUSED(parse("--lr-schedule constant --min-lr-fraction 0.1"), "--min-lr-fraction", "constant");
  EXPECT_REFUSED(parse("--cost-input 3"), "--cost-input", "--device timed");
  EXPECT_REFUSED(parse("--stages 3"), "--stages", "--device timed");
  EXPECT_REFUSED(parse("plan --stages 3 --cost-input 3 --profile a.json"), "--cost-input and --profile contradict");
  EXPECT_REFUSED(parse("--device cpu --precision bf16"), "--precision bf16", "--device cuda");
  EXPECT_REFUSED(parse("simulate --stages 4 --seq-len 64"), "--seq-len", "--cost-bandwidth");
  EXPECT_REFUSED(parse("simulate --stages 4 --ascii --json"), "--ascii and --json contradict");
  EXPECT_REFUSED(parse("simulate --stages 4 --schedule gpipe,1f1b --csv a.csv"), "--csv writes one schedule");
  EXPECT_REFUSED(parse("simulate --stages 4 --objective span"), "--objective", "--schedule auto");
  EXPECT_EQ(parse("simulate --stages 4 --cost-bandwidth 10 --seq-len 4096").batch.seq_len, 4096);
}

TEST(OptionsRefused, MissingOptions) {
  EXPECT_REFUSED(parse("prepare --text a.txt"), "prepare needs --output");
  EXPECT_REFUSED(parse("prepare --output a.bin"), "prepare needs --text");
  EXPECT_EQ(parse("generate --prompt a").model.init_file, "out/latest");
  EXPECT_EQ(parse("evaluate --val-data a").model.init_file, "out/latest");
  EXPECT_EQ(parse("train").model.init_file, "") << "never of train";
  EXPECT_REFUSED(parse("evaluate --init a.bin"), "evaluate needs --val-data");
  EXPECT_REFUSED(parse("simulate"), "simulate needs --stages");
  EXPECT_EQ(parse("simulate --schedule-file a.csv").pipeline.schedule_file, "a.csv");
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

// Command lines that are refused, and in which words.
#include "test/commands/cli/parse_line.h"
#include "test/refused.h"

namespace train_gpt {
namespace {

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
  EXPECT_REFUSED(parse("simulate --stages 4 --seed 3"), "--seed is not an option of simulate");
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
  EXPECT_REFUSED(parse("--schedule 1b1f"), "--schedule: '1b1f'", "did you mean 1f1b?", "auto, 2bw or pipedream");
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

}  // namespace
}  // namespace train_gpt

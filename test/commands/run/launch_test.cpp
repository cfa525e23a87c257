// Who started the program, by the variables of the launchers.
#include <gtest/gtest.h>

#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

class Launched : public testing::Test {
 protected:
  Launched() {
    const std::vector<char> tokens = golden::token_file(2000, golden::kTrainSeed);
    write_file(folder_ / "tokens.bin", tokens.data(), tokens.size());
  }
  ProgramRun run(int ranks, const std::string& environment) {
    return run_program(
        ranks,
        "--train-data " + (folder_ / "tokens.bin") +
            " --vocab 1009 --layers 1 --heads 1 --hidden 16 --seq-len 16 --steps 1 --device cpu --overwrite --output " +
            (folder_ / "out"),
        {.environment = environment});
  }
  Folder folder_;
};

TEST_F(Launched, InASlurmAllocationWithoutSrunIsOneRank) {
  for (const std::string job : {"SLURM_JOB_ID=7 SLURM_NTASKS=4", "SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0"}) {
    const ProgramRun alone = run(0, job);
    EXPECT_EQ(alone.status, 0) << job << "\n" << alone.output;
    const ProgramRun several = run(2, job);  // mpirun inside the allocation
    EXPECT_EQ(several.status, 0) << job << "\n" << several.output;
  }
}

TEST_F(Launched, BySrunThatTheMpiLibraryDoesNotUnderstandIsRefused) {
  const ProgramRun refused = run(0, "SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0");
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_NE(refused.output.find("the launcher started 4 processes"), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("srun --mpi=pmi2"), std::string::npos) << refused.output;
  EXPECT_EQ(count(refused.output, "train_gpt: error:"), 1) << refused.output;
}

}  // namespace
}  // namespace train_gpt::test

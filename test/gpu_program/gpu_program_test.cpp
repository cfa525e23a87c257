// The program itself on emulated GPUs, as it runs on real ones: which GPU a rank takes, how ranks talk, what the log
// says, and how a job ends when a rank stops, dies or loses its network while its peers wait inside NCCL.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "test/commands/log_events.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;

class GpuProgram : public testing::Test {
 protected:
  GpuProgram() {
    const std::vector<char> tokens = golden::token_file(8000, golden::kTrainSeed);
    write_file(folder_ / "tokens.bin", tokens.data(), tokens.size());
  }

  ProgramRun run(int ranks, const std::string& options, const std::string& environment,
                 const std::string& batch = "--seq-len 16 --micro-batch-size 1 --micro-batches 4") const {
    return run_program(ranks,
                       "--train-data " + (folder_ / "tokens.bin") + " --vocab 1009 --layers 3 --heads 2 --hidden 32 " +
                           batch + " --partition uniform --overwrite --output " + (folder_ / "out") + " " + options,
                       {.program = "train_gpt-emulated", .environment = environment});
  }
  std::string hash() const { return events(log(), "end").at(0).at("parameter_hash"); }
  std::string log() const { return read_file(folder_ / "out/log.jsonl"); }

  Folder folder_;
};

TEST_F(GpuProgram, TheSameBitsThroughNcclThroughHostMemoryAndAlone) {
  const ProgramRun alone = run(1, "--steps 2 --schedule gpipe", "EMULATOR_DEVICES=1");
  ASSERT_EQ(alone.status, 0) << alone.output;
  EXPECT_NE(alone.output.find("bf16"), std::string::npos) << "the default on a GPU\n" << alone.output;
  const std::string expected = hash();
  struct Case {
    int ranks;
    std::string environment;
    bool shares;
  };
  // GPU by local rank among the visible ones; each rank its own list of one; fewer GPUs than ranks.
  for (const Case& one :
       {Case{2, "EMULATOR_DEVICES=2", false}, Case{2, "EMULATOR_DEVICES=8 CUDA_VISIBLE_DEVICES=5,3", false},
        Case{2, "EMULATOR_DEVICES=8 CUDA_VISIBLE_DEVICES=5", true}, Case{3, "EMULATOR_DEVICES=2", true}}) {
    const ProgramRun several = run(one.ranks, "--steps 2 --schedule 1f1b", one.environment);
    ASSERT_EQ(several.status, 0) << one.environment << "\n" << several.output;
    EXPECT_EQ(hash(), expected) << one.environment;
    const int notices = count(several.output, "ranks share a GPU, which NCCL refuses: messages go through host memory");
    EXPECT_EQ(notices, one.shares ? 1 : 0) << one.environment << "\n" << several.output;
  }
}

TEST_F(GpuProgram, OptimisticStepsHaveTheBitsOfSynchronousOnes) {
  for (const std::string devices : {"EMULATOR_DEVICES=2", "EMULATOR_DEVICES=1"}) {
    for (const std::string clip : {"1e9", "1e-3"}) {
      const std::string options = "--steps 3 --schedule zb-h1 --grad-clip " + clip;
      ASSERT_EQ(run(2, options, devices).status, 0);
      const std::string expected = hash();
      const ProgramRun optimistic = run(2, options + " --optimizer-step optimistic", devices);
      ASSERT_EQ(optimistic.status, 0) << optimistic.output;
      EXPECT_EQ(hash(), expected) << devices << " clip " << clip;
    }
  }
}

// Products on a GPU do not promise a row the same bits beside other rows, so every token computes all positions.
TEST_F(GpuProgram, GeneratesWithoutACacheAndSaysSo) {
  const ProgramRun trained = run(1, "--steps 1 --max-seq-len 16 --sample-every 1", "EMULATOR_DEVICES=1");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_EQ(trained.output.find("keys and values"), std::string::npos)
      << "a line of the plan of a device that has them";
  std::vector<std::string> said;
  for (const int ranks : {1, 2}) {
    const ProgramRun generated =
        run_program(ranks, "generate --init " + (folder_ / "out") + " --prompt '1 2 3' --tokens 15 --temperature 0",
                    {.program = "train_gpt-emulated", .environment = "EMULATOR_DEVICES=2"});
    ASSERT_EQ(generated.status, 0) << generated.output;
    EXPECT_EQ(count(generated.output, "note: the cuda device keeps no keys and values"), 1) << generated.output;
    // The note goes to standard error, and mpirun may put it into the middle of the line of ids.
    std::string output = generated.output;
    const std::size_t note = output.find("note: the cuda device");
    output.erase(note, output.find('\n', note) + 1 - note);
    const std::size_t ids = output.find("1 2 3 ");
    ASSERT_NE(ids, std::string::npos) << generated.output;
    said.push_back(output.substr(ids, output.find('\n', ids) - ids));
  }
  EXPECT_EQ(count(said[0], " "), 18) << said[0];
  EXPECT_EQ(said[1], said[0]);
}

TEST_F(GpuProgram, MfuIsSaidForKnownCardsOnly) {
  ProgramRun known = run(2, "--steps 1", "EMULATOR_DEVICES=2");
  ASSERT_EQ(known.status, 0) << known.output;
  EXPECT_NE(known.output.find("peak for MFU: 2 GPUs x 989.4 TFLOP/s dense; attention counted as its causal half"),
            std::string::npos)
      << known.output;
  EXPECT_NE(known.output.find("MFU 0.0%"), std::string::npos) << known.output;
  const Json step = events(log(), "step").at(0);
  // Three times the forward: 24 C^2 per layer for the products, 2 C (T + 1) for attention's causal half, 2 C V for the
  // head.
  const double flops_per_token = 3.0 * (3 * (24 * 32 * 32 + 2 * 32 * 17) + 2 * 32 * 1009);
  const double expected = 4 * 16 * flops_per_token / (step.at("ms").get<double>() / 1000) / (2 * 989.4e12);
  EXPECT_NEAR(step.at("mfu").get<double>() / expected, 1, 1e-6) << step.dump();
  const ProgramRun shared = run(2, "--steps 1", "EMULATOR_DEVICES=1");
  EXPECT_NE(shared.output.find("peak for MFU: 1 GPU x"), std::string::npos) << shared.output;
  const ProgramRun unknown = run(2, "--steps 1", "EMULATOR_DEVICES=2 EMULATOR_CARD=Tesla-T4");
  EXPECT_EQ(unknown.output.find("MFU"), std::string::npos) << unknown.output;
  EXPECT_TRUE(events(log(), "step").at(0).at("mfu").is_null());
}

TEST_F(GpuProgram, SaysWhatIsWrongWithTheGpusOnce) {
  struct Case {
    std::string options, environment;
    std::vector<std::string> parts;
  };
  for (const Case& bad :
       {Case{"--device cuda", "EMULATOR_DEVICES=0", {"--device cuda", "--device cpu"}},
        Case{"--device cuda", "EMULATOR_DEVICES=2 CUDA_VISIBLE_DEVICES=", {"CUDA_VISIBLE_DEVICES", "--device cpu"}},
        Case{"",
             "EMULATOR_DEVICES=1 EMULATOR_EXCLUSIVE=1",
             {"2 ranks on a host with 1 visible GPU", "compute mode", "start at most 1 ranks per host"}}}) {
    const ProgramRun refused = run(2, bad.options + " --steps 1", bad.environment);
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_EQ(count(refused.output, "train_gpt: error:"), 1) << refused.output;
    for (const std::string& part : bad.parts) EXPECT_NE(refused.output.find(part), std::string::npos) << refused.output;
  }
}

TEST_F(GpuProgram, SaysWhyItTookTheCpu) {
  for (const auto& [environment, reason] :
       {std::pair{"EMULATOR_DEVICES=0", "(no GPUs: this machine has no GPU)"},
        std::pair{"EMULATOR_OLD_DRIVER=1", "(no GPUs: this machine has no NVIDIA driver, or one that is too old"}}) {
    const ProgramRun on_cpu = run(2, "--device auto --steps 1", environment);
    EXPECT_EQ(on_cpu.status, 0) << on_cpu.output;
    EXPECT_EQ(count(on_cpu.output, reason), 1) << on_cpu.output;
  }
}

TEST_F(GpuProgram, RefusesWhatWouldRunKernelsOneAfterAnother) {
  for (const std::string variable :
       {"CUDA_LAUNCH_BLOCKING=1", "CUDA_DEVICE_MAX_CONNECTIONS=1", "NV_NSIGHT_INJECTION_PORT_BASE=49152"}) {
    const ProgramRun refused = run(2, "--steps 1", "EMULATOR_DEVICES=2 " + variable);
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_EQ(count(refused.output, "train_gpt: error:"), 1) << refused.output;
    EXPECT_NE(refused.output.find(variable.substr(0, variable.find('='))), std::string::npos) << refused.output;
    EXPECT_NE(refused.output.find("one after the other"), std::string::npos) << refused.output;
  }
  const ProgramRun alone = run(1, "--steps 1", "EMULATOR_DEVICES=1 CUDA_LAUNCH_BLOCKING=1");
  EXPECT_EQ(alone.status, 0) << alone.output;
}

// With --profile nothing is measured at the start, which would use every product on the way.
TEST_F(GpuProgram, TrainsFromAProfile) {
  const std::string profile = folder_ / "profile.json";
  const ProgramRun measured = run(2, "--steps 1", "EMULATOR_DEVICES=2");
  ASSERT_EQ(measured.status, 0) << measured.output;
  const std::string expected = hash();
  const ProgramRun written = run_program(
      2, "profile --vocab 1009 --layers 3 --heads 2 --hidden 32 --seq-len 16 --micro-batch-size 1 --profile " + profile,
      {.program = "train_gpt-emulated", .environment = "EMULATOR_DEVICES=2"});
  ASSERT_EQ(written.status, 0) << written.output;
  const ProgramRun trained = run(2, "--steps 1 --profile " + profile, "EMULATOR_DEVICES=2");
  EXPECT_EQ(trained.status, 0) << trained.output;
  EXPECT_EQ(hash(), expected);
}

TEST_F(GpuProgram, PlansWithTheMemoryOfItsGpus) {
  const std::string options = "--steps 1 --schedule gpipe",
                    batch = "--seq-len 64 --micro-batch-size 4 --micro-batches 24";
  const ProgramRun roomy = run(2, options, "EMULATOR_DEVICES=2", batch);
  ASSERT_EQ(roomy.status, 0) << roomy.output;
  EXPECT_NE(roomy.output.find("GPU memory: 4.0 GiB"), std::string::npos) << roomy.output;
  EXPECT_NE(roomy.output.find("multiprocessors: up to 2 channels end on a rank"), std::string::npos) << roomy.output;
  const std::string expected = hash();
  // Room for 43 MiB: for the workspace (32 MiB) and for what is kept when layers are recomputed.
  const std::string small = "EMULATOR_DEVICES=2 EMULATOR_MEMORY=0.4993";
  const ProgramRun refused = run(2, options, small, batch);
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_EQ(count(refused.output, "and its GPU has"), 1) << refused.output;
  EXPECT_NE(refused.output.find("--recompute auto"), std::string::npos) << refused.output;
  const ProgramRun recomputing = run(2, options + " --recompute auto", small, batch);
  EXPECT_EQ(recomputing.status, 0) << recomputing.output;
  EXPECT_EQ(hash(), expected);
}

// At its n-th call of NCCL rank 1 gets a signal, or its communicator loses the peer.
class GpuProgramFault : public GpuProgram {
 protected:
  ProgramRun with_fault(const std::string& fault, int ranks, const std::string& options = "") {
    const auto begin = std::chrono::steady_clock::now();
    ProgramRun result = run(ranks, "--steps 1000 --schedule 1f1b --stall-timeout 8s " + options,
                            "EMULATOR_DEVICES=" + std::to_string(ranks) + " EMULATOR_NCCL_FAULT=" + fault);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(seconds.count(), 60) << fault << "\n" << result.output;  // 10 after the fault, and the steps before it
    EXPECT_NE(result.status, 0) << fault;
    return result;
  }
};

TEST_F(GpuProgramFault, AStoppedRankIsNamedByThoseWhoWaitForItInsideNccl) {
  struct Case {
    std::string call, options, waiting;
  };
  for (const Case& one : {Case{"ncclSend:60", "", "error: rank 0: while waiting for the gradient of micro-batch"},
                          Case{"ncclAllReduce:3", "--data-parallel 2",
                               "error: rank 0: while waiting for the gradients of the other replicas"}}) {
    const ProgramRun stopped = with_fault("stop:1:" + one.call, 2, one.options);
    EXPECT_NE(stopped.output.find(one.waiting), std::string::npos) << one.call << "\n" << stopped.output;
    EXPECT_NE(stopped.output.find(") shows no sign of life for 8 s"), std::string::npos) << one.call << "\n"
                                                                                         << stopped.output;
  }
}

TEST_F(GpuProgramFault, ARankStoppedWhileConnectingEndsTheJob) {
  const auto begin = std::chrono::steady_clock::now();
  const ProgramRun stopped = run(2, "--steps 1", "EMULATOR_DEVICES=2 EMULATOR_NCCL_FAULT=stop:1:ncclRecv:1");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_NE(stopped.status, 0);
  EXPECT_LT(seconds.count(), 100);
  EXPECT_NE(stopped.output.find("error: rank 0: connecting channel 0 (rank 0 to rank 1): no answer for 60 s"),
            std::string::npos)
      << stopped.output;
}

TEST_F(GpuProgramFault, ALostPeerEndsAllRanksWithNcclsMessage) {
  for (const std::string call : {"ncclRecv:60", "ncclAllReduce:4"}) {
    const ProgramRun broken = with_fault("break:1:" + call, 2);
    EXPECT_NE(broken.output.find("error: rank 1: NCCL: "), std::string::npos) << call << "\n" << broken.output;
    EXPECT_NE(broken.output.find("remote process exited or there was a network error"), std::string::npos)
        << call << "\n"
        << broken.output;
  }
}

TEST_F(GpuProgramFault, AKilledRankEndsTheJobAndItsLastActionIsKnown) {
  const ProgramRun killed = with_fault("kill:1:ncclSend:60", 4);
  const ProgramRun status = run_program(0, "status " + (folder_ / "out"), {.program = "train_gpt-emulated"});
  for (int r = 0; r < 4; ++r) {
    EXPECT_NE(status.output.find(std::to_string(r) + " of 4"), std::string::npos) << status.output << killed.output;
  }
  EXPECT_EQ(count(status.output, "gone"), 4) << status.output;
  EXPECT_NE(status.output.find("of micro-batch"), std::string::npos) << status.output;
}

}  // namespace
}  // namespace train_gpt::test

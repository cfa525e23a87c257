// Starts jobs of nccl_cases (NCCL_CASES names the program) under mpirun and judges them from outside: what succeeds
// must succeed with 4 and 8 ranks in every order of streams, and every planted fault must be reported, by the ranks
// that it concerns, within seconds.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

struct Outcome {
  int status = -1;
  std::string output;
};

// The race detector names accesses that are not ordered, before their consequences are seen.
bool with_race_detector() {
  const char* program = std::getenv("NCCL_CASES");
  return program != nullptr && std::string(program).ends_with("-race");
}

Outcome run(int ranks, const std::string& cases, const std::string& environment = "") {
  const char* program = std::getenv("NCCL_CASES");
  if (program == nullptr) return {-1, "NCCL_CASES is not set"};
  const std::string command =
      "EMULATOR_FIRST_USE=0 EMULATOR_NCCL_WATCHDOG=0.5 EMULATOR_DEVICES=" + std::to_string(ranks) +
      " UCX_LOG_LEVEL=error " + environment + " timeout 120 mpirun -n " + std::to_string(ranks) + " " + program + " " +
      cases + " 2>&1";
  Outcome outcome;
  std::FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) outcome.output += buffer;
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

constexpr const char* kSucceeding[] = {"all_reduce",
                                       "all_reduce_of_other_types",
                                       "reduce_scatter_and_all_gather",
                                       "broadcast_and_reduce",
                                       "ring",
                                       "group_keeps_the_order",
                                       "one_communicator_on_two_streams",
                                       "crossed_channels",
                                       "device_runs_while_host_waits_in_mpi",
                                       "split",
                                       "grouped_creation_in_any_order",
                                       "without_blocking",
                                       "abort_lets_the_stream_go_on",
                                       "creations_are_counted"};

struct Job {
  int ranks;
  const char* streams;
};

class NcclJobs : public testing::TestWithParam<Job> {};

TEST_P(NcclJobs, EveryCaseSucceeds) {
  const Outcome outcome =
      run(GetParam().ranks, "all", std::string("EMULATOR_SEED=3 EMULATOR_STREAMS=") + GetParam().streams);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* name : kSucceeding) {
    EXPECT_NE(outcome.output.find(std::string("passed ") + name + "\n"), std::string::npos) << name << outcome.output;
  }
}

INSTANTIATE_TEST_SUITE_P(RanksAndOrders, NcclJobs,
                         testing::Values(Job{4, "issue"}, Job{4, "latest"}, Job{4, "random"}, Job{8, "latest"},
                                         Job{8, "random"}),
                         [](const auto& job) { return std::to_string(job.param.ranks) + job.param.streams; });

// UCX on shared memory without its fast paths shows when somebody does not move messages.
TEST(NcclJobs, SucceedOnAnotherTransport) {
  const Outcome outcome = run(4, "ring crossed_channels", "UCX_TLS=posix,self");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

// Messages of many pieces, as those beyond 1 GiB are.
TEST(NcclJobs, SucceedWithMessagesInPieces) {
  const Outcome outcome = run(4, "all_reduce ring group_keeps_the_order crossed_channels", "EMULATOR_NCCL_PIECE=100");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(NcclJobs, SlowRanksAreNotStuckRanks) {
  const Outcome outcome = run(4, "a_slow_rank_is_no_deadlock");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(NcclRaces, AReaderThatForgotToWaitNeverSeesTheDataByLuck) {
  for (const char* streams : {"issue", "latest"}) {
    const Outcome outcome = run(2, "early_reader_sees_nan", std::string("EMULATOR_STREAMS=") + streams);
    EXPECT_EQ(outcome.status != 0, with_race_detector()) << outcome.output;
    if (!with_race_detector()) continue;
    EXPECT_NE(outcome.output.find("[race-between-operations]"), std::string::npos) << outcome.output;
  }
}

class NcclChangedBuffers : public testing::TestWithParam<const char*> {};

TEST_P(NcclChangedBuffers, AreReported) {
  const std::string buffer = GetParam();
  const Outcome outcome = run(2, "changed_" + buffer + "_buffer");
  EXPECT_NE(outcome.status, 0) << outcome.output;
  const std::string report =
      with_race_detector() ? "[race-between-operations]" : "[nccl-" + buffer + "-buffer-changed]";
  EXPECT_NE(outcome.output.find(report), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find(buffer == "send" ? "ncclSend(16 x" : "ncclRecv(16 x"), std::string::npos)
      << outcome.output;
}
INSTANTIATE_TEST_SUITE_P(Kinds, NcclChangedBuffers, testing::Values("send", "receive"));

struct Fault {
  const char* name;
  int ranks;
  std::vector<const char*> reports;
  const char* environment = "";
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class NcclFaults : public testing::TestWithParam<Fault> {};

TEST_P(NcclFaults, IsReported) {
  const Outcome outcome = run(GetParam().ranks, GetParam().name, GetParam().environment);
  EXPECT_NE(outcome.status, 0) << outcome.output;
  for (const char* report : GetParam().reports) {
    EXPECT_NE(outcome.output.find(report), std::string::npos) << report << "\n" << outcome.output;
  }
  EXPECT_EQ(outcome.output.find("passed"), std::string::npos) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    Planted, NcclFaults,
    testing::Values(
        Fault{"mismatched_count",
              4,
              {"[nccl-mismatch] rank 0", "this rank: ncclSend(10 x float32 to rank 1)",
               "rank 1: ncclRecv(12 x float32 from rank 0)", "[nccl-mismatch] rank 1",
               "this rank: ncclRecv(12 x float32 from rank 0)", "rank 0: ncclSend(10 x float32 to rank 1)"}},
        Fault{"mismatched_type", 2, {"[nccl-mismatch] rank 0", "[nccl-mismatch] rank 1", "ncclRecv(10 x int32"}},
        Fault{"mismatched_reduction",
              2,
              {"[nccl-mismatch] rank 0", "[nccl-mismatch] rank 1", "float32 max", "float32 sum"}},
        Fault{"mismatched_collective",
              2,
              {"[nccl-mismatch] rank 0", "[nccl-mismatch] rank 1", "ncclBroadcast(8 x", "ncclAllReduce(8 x"}},
        Fault{"deadlock_of_sends",
              4,
              {"[nccl-deadlock] rank 0", "[nccl-deadlock] rank 1", "[nccl-deadlock] rank 2", "[nccl-deadlock] rank 3",
               "rank 3 of 4: ncclSend(16 x float32 to rank 2) #3 waits for rank 2",
               "rank 3 of 4: ncclRecv(16 x float32 from rank 2) #4 waits for the communicator's earlier operations",
               "host: in cudaDeviceSynchronize"}},
        Fault{"deadlock_of_two_communicators",
              2,
              {"[nccl-deadlock] rank 0", "[nccl-deadlock] rank 1", "waits for its stream"}},
        Fault{"deadlock_of_first_uses",
              2,
              {"[nccl-deadlock] rank 0", "[nccl-deadlock] rank 1", "connecting for the first use of ncclAllReduce"}},
        Fault{"sum_of_another_size_behind_a_sum",
              2,
              {"error [first-use]: ncclAllReduce(1024 x float32 sum)", "while ncclAllReduce(4 x float32 sum)"},
              "EMULATOR_FIRST_USE=1"},
        Fault{"deadlock_with_host",
              2,
              {"[nccl-deadlock] rank 0", "host: in MPI_Barrier", "[nccl-deadlock] rank 1",
               "ncclRecv(16 x float32 from rank 0) #3 waits for rank 0"}},
        Fault{"deadlock_of_creation", 2, {"host: in the creation of communicators", "host: in MPI_Barrier"}},
        Fault{"buffer_too_small", 2, {"ncclAllReduce(17 x float32 sum)"}}),
    [](const auto& fault) { return std::string(fault.param.name); });

TEST(NcclRefuses, WrongArguments) {
  const Outcome outcome = run(2, "refused_arguments");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(NcclRefuses, TwoRanksOnOneGpu) {
  Outcome outcome = run(2, "refused_duplicate_gpu", "ONE_GPU_FOR_ALL=1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  outcome = run(2, "refused_duplicate_gpu", "CUDA_VISIBLE_DEVICES=1,1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

}  // namespace

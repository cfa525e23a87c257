#include "nccl_watch.h"

#include <mpi.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "nccl_message.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

namespace emulator::nccl {
namespace {

using Nanoseconds = std::int64_t;
constexpr Nanoseconds kSecond = 1'000'000'000;
// Asked within this part of the limit (and within a second): is still asking.
constexpr double kAskedLately = 0.5;
constexpr Nanoseconds kReportTime = 5 * kSecond;
constexpr double kDefaultSeconds = 5;
constexpr double kPollingFactor = 4;
// The runtime's own watchdog knows nothing of other ranks: with several, it only serves where ours cannot see.
constexpr double kRuntimeWatchdogFactor = 15;

struct Entry {
  std::atomic<Nanoseconds> asked{0};
  std::atomic<Nanoseconds> moved{0};
  std::atomic<int> polls{0};  // instead of waiting
  std::atomic<int> reported{0};
};

MPI_Win window = MPI_WIN_NULL;
Entry* board = nullptr;  // one entry per world rank; null where the ranks are not all on this host
double limit_seconds = kDefaultSeconds;
std::uint64_t operations_seen = 0;
std::string (*stuck_report)() = nullptr;

Nanoseconds now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);  // one clock for all processes of the host
  return t.tv_sec * kSecond + t.tv_nsec;
}

bool is_stuck(const Entry& entry, Nanoseconds time) {
  if (entry.reported != 0) return true;
  const double limit = limit_seconds * (entry.polls != 0 ? kPollingFactor : 1);
  const auto lately = std::min(kSecond, static_cast<Nanoseconds>(kAskedLately * limit_seconds * 1e9));
  return time - entry.asked < lately && time - entry.moved > static_cast<Nanoseconds>(limit * 1e9);
}

bool everyone_is_stuck(Nanoseconds time) {
  for (int rank = 0; rank < world_size(); ++rank) {
    if (!is_stuck(board[rank], time)) return false;
  }
  return true;
}

[[noreturn]] void report_deadlock() {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", limit_seconds);
  std::string text = "every rank waits and nothing has moved for " + std::string(seconds) + " s; this rank has\n";
  if (!host_waits_in().empty()) text += "  host: in " + std::string(host_waits_in()) + "\n";
  text += describe_streams();
  if (stuck_report != nullptr) text += stuck_report();
  report_both_ends("nccl-deadlock", text, -1);
}

}  // namespace

void open_watch() {
  if (const char* seconds = std::getenv("EMULATOR_NCCL_WATCHDOG")) limit_seconds = std::atof(seconds);
  if (world_size() == 1) return;
  settings().watchdog_seconds *= kRuntimeWatchdogFactor;
  MPI_Comm host = MPI_COMM_NULL;
  PMPI_Comm_split_type(private_world(), MPI_COMM_TYPE_SHARED, world_rank(), MPI_INFO_NULL, &host);
  int on_host = 0;
  PMPI_Comm_size(host, &on_host);
  if (on_host == world_size()) {
    Entry* mine = nullptr;
    const MPI_Aint bytes = world_rank() == 0 ? static_cast<MPI_Aint>(sizeof(Entry)) * world_size() : 0;
    PMPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, host, &mine, &window);
    MPI_Aint size = 0;
    int unit = 0;
    PMPI_Win_shared_query(window, 0, &size, &unit, &board);
    new (&board[world_rank()]) Entry{};
    note_progress();
    PMPI_Barrier(host);
  }
  PMPI_Comm_free(&host);
}

void close_watch() {
  if (board == nullptr) return;
  board = nullptr;
  PMPI_Win_free(&window);
}

void note_progress() {
  if (board != nullptr) board[world_rank()].moved = now();
}

void note_idle() {
  if (board == nullptr) return;
  Entry& mine = board[world_rank()];
  const Nanoseconds time = now();
  mine.asked = time;
  mine.polls = host_waits_in().empty() ? 1 : 0;
  if (operations_finished() != operations_seen) {
    operations_seen = operations_finished();
    mine.moved = time;
  }
  if (is_stuck(mine, time) && everyone_is_stuck(time)) report_deadlock();
}

void set_stuck_report(std::string (*report)()) { stuck_report = report; }

void report_both_ends(const std::string& name, const std::string& text, int peer) {
  std::fflush(stdout);
  const std::string line = "emulator: error [" + name + "] rank " + std::to_string(world_rank()) + ": " + text +
                           "  repeat  " + repeat_with() + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) std::_Exit(kExitStatus);
  if (board != nullptr) {
    board[world_rank()].reported = 1;
    const Nanoseconds until = now() + kReportTime;
    const auto others_reported = [peer] {
      for (int rank = 0; rank < world_size(); ++rank) {
        const bool awaited = peer < 0 || rank == peer;
        if (awaited && board[rank].reported == 0) return false;
      }
      return true;
    };
    while (!others_reported() && now() < until) {
      int flag = 0;
      PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, private_world(), &flag, MPI_STATUS_IGNORE);  // moves our header out
      usleep(1000);
    }
  }
  std::_Exit(kExitStatus);
}

}  // namespace emulator::nccl

#include "commands/run/stopping.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace train_gpt {
namespace {

// Places in Votes: the signals first.
constexpr std::size_t kTime = kStopSignals.size();
constexpr std::size_t kJobEnd = kTime + 1;
constexpr std::size_t kCheckpoint = kTime + 2;
static_assert(kCheckpoint < kFolderIsLost);

constexpr const char* kFolderIsGone = "the removal of its folder";
constexpr double kJobReserveSeconds = 60;        // for the model file and errors of the batch system's clock
constexpr double kLargestShareOfWriting = 0.02;  // of the run's time

// SLURM_JOB_END_TIME, seconds since 1970, on a clock that now shows `now_there`; 0 if it is not set.
double end_of_job(double now_there) {
  const char* text = std::getenv("SLURM_JOB_END_TIME");
  if (text == nullptr) return 0;
  std::int64_t seconds = 0;
  const char* end = text + std::strlen(text);
  if (const auto [stop, error] = std::from_chars(text, end, seconds); stop != end || error != std::errc()) {
    throw std::invalid_argument(std::string("SLURM_JOB_END_TIME=") + text + ": is not a time in seconds; unset it");
  }
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now_there + static_cast<double>(seconds) - now;
}

}  // namespace

Stopping::Stopping(const RunOptions& run, bool first, double begun, std::function<double()> seconds)
    : run_(run),
      seconds_(std::move(seconds)),
      first_(first),
      begun_(begun),
      job_ends_(end_of_job(seconds_())),
      last_checkpoint_(seconds_()) {}

Votes Stopping::votes() const {
  Votes votes{};
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) votes[i] = stop_request() == kStopSignals[i] ? 1 : 0;
  if (!first_) return votes;  // one rank alone looks at clocks and files
  const double last_moment = seconds_() + 2 * (step_seconds_ + checkpoint_seconds_);
  votes[kTime] = run_.time_limit > 0 && last_moment > begun_ + run_.time_limit ? 1 : 0;
  votes[kJobEnd] = job_ends_ != 0 && last_moment > job_ends_ - kJobReserveSeconds ? 1 : 0;
  std::error_code none;
  votes[kCheckpoint] = checkpoint_is_due() || std::filesystem::exists(request_file(run_.output), none) ? 1 : 0;
  return votes;
}

Stopping::Verdict Stopping::read(const Votes& sums, const std::string& earlier) const {
  Verdict verdict;
  for (std::size_t i = kStopSignals.size(); i-- > 0;) {
    if (sums[i] > 0) verdict.stop = signal_name(kStopSignals[i]);
  }
  if (sums[kJobEnd] > 0) verdict.stop = "the end of the Slurm job";
  if (sums[kTime] > 0) verdict.stop = "--time-limit";
  if (sums[kFolderIsLost] > 0) verdict.stop = kFolderIsGone;
  if (!earlier.empty()) verdict.stop = earlier;
  verdict.folder_is_lost = sums[kFolderIsLost] > 0;
  verdict.folder_is_gone = verdict.stop == kFolderIsGone;
  verdict.checkpoint = sums[kCheckpoint] > 0;
  return verdict;
}

bool Stopping::checkpoint_is_due() const {
  if (run_.checkpoint_seconds <= 0) return false;
  const double pace = std::max(run_.checkpoint_seconds, still_seconds_ / kLargestShareOfWriting);
  return seconds_() - last_checkpoint_ >= pace;
}

void Stopping::checkpoint_took(double still, double whole) {
  still_seconds_ = still;
  checkpoint_seconds_ = whole;
}

void Stopping::checkpoint_begins() {
  last_checkpoint_ = seconds_();
  std::error_code ignored;
  if (first_) std::filesystem::remove(request_file(run_.output), ignored);
}

std::string request_file(const std::string& folder) { return folder + "/checkpoint.request"; }

}  // namespace train_gpt

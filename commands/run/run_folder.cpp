#include "commands/run/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "commands/run/best_model.h"
#include "commands/run/folder_swap.h"
#include "commands/run/overwritten.h"
#include "commands/run/stopping.h"
#include "commands/run/told.h"
#include "model/range_file.h"
#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRuns = "out";
constexpr const char* kLog = "log.jsonl";
// Files that a run leaves beside its checkpoints.
constexpr const char* kFiles[] = {kLog, "records.bin", "model.bin", "report.html"};

bool is_state(const std::string& name) {
  return name.starts_with("state.") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && fs::is_directory(path)) return;
  throw std::invalid_argument("--output " + path + " is not a directory that can be written: " +
                              (error ? error.message() : "a file of that name exists"));
}

// The first out/run-K after all existing ones. mkdir decides between runs that begin at the same time.
std::string make_next_run() {
  make_folder(kRuns);
  std::int64_t last = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kRuns)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("run-") || name.size() == 4 || name.size() > 16) continue;
    if (name.find_first_not_of("0123456789", 4) != std::string::npos) continue;
    last = std::max<std::int64_t>(last, std::stoll(name.substr(4)));
  }
  for (std::int64_t k = last + 1;; ++k) {
    std::string path = std::string(kRuns) + "/run-" + std::to_string(k);
    if (mkdir(path.c_str(), 0777) == 0) return path;
    if (errno != EEXIST) throw std::invalid_argument(path + ": the folder cannot be made: " + std::strerror(errno));
  }
}

bool is_inside(const std::string& checkpoint, const std::string& folder) {
  std::error_code error;
  const fs::path checkpoints = fs::weakly_canonical(folder + "/checkpoints", error);
  if (error) return false;
  const fs::path path = fs::weakly_canonical(checkpoint, error);
  return !error && (path.has_filename() ? path : path.parent_path()).parent_path() == checkpoints;
}

// Removes files that earlier runs left over. Those of replace_file() and probes have a process or a run in their names.
void remove_litter(const std::string& folder) {
  remove_left_overs(folder);
  std::error_code ignored;
  fs::remove(request_file(folder), ignored);
  fs::remove(temporary_name(folder + "/model.bin"), ignored);
  std::vector<fs::path> litter;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool report = name.starts_with("report.html.") && name.ends_with(".partial");
    if (report || (name.starts_with("probe.") && name.size() == 22)) litter.push_back(entry.path());
  }
  for (const fs::path& path : litter) fs::remove(path, ignored);
}

// NFS may take some seconds to show a file that another host made.
void require_seen(const std::string& path) {
  std::error_code error;
  for (int tries = 0; tries < 50; ++tries) {
    if (fs::exists(path, error)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw std::invalid_argument(path + ": is not there");
}

void turn_latest_to(const std::string& folder) {
  const fs::path path(folder);
  if (path.parent_path() != kRuns || !path.has_filename() || path.filename() == "latest") return;
  const std::string link = std::string(kRuns) + "/latest";
  const std::string fresh = link + "." + std::to_string(getpid());
  std::error_code error;
  if (fs::exists(fs::symlink_status(link)) && !fs::is_symlink(fs::symlink_status(link))) return;
  fs::create_symlink(path.filename(), fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error) fs::remove(fresh, error);
}

}  // namespace

std::string run_in(const std::string& folder) {
  std::error_code error;
  for (const char* name : kFiles) {
    if (fs::exists(fs::symlink_status(folder + "/" + name))) return name;
  }
  if (best_record(folder)) return "best";
  if (has_checkpoints(folder)) return "checkpoints";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (is_state(entry.path().filename().string())) return entry.path().filename().string();
  }
  return "";
}

void RunFolder::choose(const Options& options) {
  const RunOptions& run = options.run;
  const bool any = run.resume == "latest" || run.resume == "auto";
  path_ = run.output;
  if (path_.empty()) {
    const char* job = std::getenv("SLURM_JOB_ID");
    if (job != nullptr && *job != '\0' && std::strspn(job, "0123456789_") == std::strlen(job)) {
      path_ = std::string(kRuns) + "/job-" + job;
    } else if (any) {
      throw std::invalid_argument("--resume " + run.resume +
                                  " needs --output DIR, the folder of the run that goes on (out/latest is the newest)");
    } else {
      path_ = make_next_run();
      made_ = true;
    }
  } else if (fs::is_symlink(path_)) {
    path_ = (fs::path(path_).parent_path() / fs::read_symlink(path_)).string();  // out/latest may change
  }
  made_ = made_ || !fs::exists(fs::symlink_status(path_));
  make_folder(path_);
  lock_ = RunLock::own(path_);
  const std::string found = run_in(path_);
  const bool same = any || (!run.resume.empty() && is_inside(run.resume, path_));
  continues_ = same && !found.empty();
  goes_back_ = continues_ && !any;
  overwrites_ = run.overwrite;
  if (!found.empty() && !same && !overwrites_) {
    throw std::invalid_argument("--output " + path_ + ": a run is in this folder (" + found +
                                "). Go on with it (--resume latest, or --resume auto), take another folder (--output "
                                "OTHER, or leave it out), or give it up (--overwrite)");
  }
  run_ = continues_ && !lock_.earlier().run.empty() ? lock_.earlier().run : new_run_id();
}

RunFolder::RunFolder(Session& session, const Options& options) : first_(session.is_first()) {
  session.together([&] {
    if (first_) choose(options);
  });
  path_ = told_by_first(session.world(), path_);
  run_ = told_by_first(session.world(), run_);
  continues_ = told_by_first(session.world(), continues_ ? "continues" : "") == "continues";
  const std::string probe = path_ + "/probe." + run_;
  session.together([&] {
    if (first_) create_range_file(probe, 1);
  });
  session.together([&] {
    if (first_) return;
    try {
      lock_ = RunLock::join(path_);
      require_seen(probe);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string(error.what()) + ". Rank " + std::to_string(session.world().rank()) +
                                  " on host " + host_name() +
                                  " does not see what rank 0 made there: --output must name "
                                  "a folder that all hosts share");
    }
  });
  std::error_code ignored;
  if (first_) fs::remove(probe, ignored);
}

RunFolder::~RunFolder() {
  if (!first_ || begun_) return;
  lock_.forget();
  if (made_) rmdir(path_.c_str());  // fails if something is in it, as it should
}

std::vector<std::string> RunFolder::begin(const FoundCheckpoint& resumed) {
  begun_ = true;
  std::vector<std::string> notes;
  if (!first_) return notes;
  if (overwrites_) {
    if (std::string note = set_run_aside(path_); !note.empty()) notes.push_back(std::move(note));
  }
  if (!resumed.folder.ends_with(kReplaced)) remove_litter(path_);
  for (const char* name : kFiles) check_replaceable(path_ + "/" + name);  // writing would follow links
  lock_.write(run_);
  if (continues_) {
    const std::int64_t step = resumed.manifest.step;
    cut_log(path_ + "/" + kLog, step);
    if (goes_back_) notes = set_aside_after(path_, step);
    if (auto note = tidy_best(path_, step, goes_back_)) notes.push_back(std::move(*note));
  }
  turn_latest_to(path_);
  return notes;
}

void RunFolder::put_back(Session& session) {
  session.together([&] {
    if (!first_) return;
    make_folder(path_);
    RunLock lock = RunLock::own(path_);
    if (!lock.earlier().run.empty() && lock.earlier().run != run_) {
      throw std::runtime_error(path_ + ": the folder was removed while the run lived, and run " + lock.earlier().run +
                               " has taken its place: nothing of this run can be left there");
    }
    lock_ = std::move(lock);
    lock_.write(run_);
  });
  session.together([&] {
    if (!first_) lock_ = RunLock::join(path_);
  });
}

void cut_log(const std::string& path, std::int64_t step) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  std::uintmax_t whole = 0;
  for (std::string line; std::getline(file, line) && !file.eof(); whole += line.size() + 1) {
    const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object() || !event.contains("event")) continue;
    const auto& kind = event["event"];
    const bool beyond = (kind == "step" || kind == "validation") && event.value("step", std::int64_t{0}) >= step;
    if (beyond || kind == "measurement" || kind == "end") break;
  }
  file.close();
  if (whole < fs::file_size(path)) fs::resize_file(path, whole);
}

ScratchFolder::ScratchFolder(Session& session) : removes_(session.host().index == 0) {
  const std::string id = told_by_first(session.world(), session.is_first() ? new_run_id() : "");
  session.together([&] {
    path_ = (fs::temp_directory_path() / ("train_gpt-" + id)).string();
    struct stat status = {};
    const bool made = mkdir(path_.c_str(), 0700) == 0 || errno == EEXIST;
    if (made && lstat(path_.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid()) return;
    throw std::runtime_error(path_ + ": the folder cannot be made; TMPDIR names another place");
  });
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (removes_) fs::remove_all(path_, ignored);
}

}  // namespace train_gpt

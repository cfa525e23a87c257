#include "commands/search_watch.h"

#include <unistd.h>

#include <cstdio>

#include "pipeline/draw/table.h"

namespace train_gpt {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void remember_interrupt(int) { interrupted = 1; }

}  // namespace

SearchWatch::SearchWatch(double seconds) : seconds_(seconds) {
  interrupted = 0;
  previous_ = std::signal(SIGINT, remember_interrupt);
}

SearchWatch::~SearchWatch() {
  std::signal(SIGINT, previous_);
  if (width_ > 0) std::fprintf(stderr, "\r%*s\r", static_cast<int>(width_), "");
}

std::function<bool(const SearchProgress&)> SearchWatch::progress() {
  return [this](const SearchProgress& progress) { return go_on(progress); };
}

bool SearchWatch::go_on(const SearchProgress& progress) {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const double between = terminal ? 1 : 10;  // seconds; does not flood a log
  if (elapsed >= 2 && (shown_ == 0 || elapsed - shown_ >= between)) {
    shown_ = elapsed;
    show(progress, elapsed);
  }
  return interrupted == 0 && (seconds_ <= 0 || elapsed < seconds_);
}

void SearchWatch::show(const SearchProgress& progress, double elapsed) {
  std::string line = "searching, " + progress.doing + ": " + with_digits(elapsed, 2) + " s, ";
  line += progress.best > 0 ? "best " + with_digits(progress.best, 6) + " ms" : "nothing fits yet";
  line += ", bound " + with_digits(progress.bound, 6) + " ms (Ctrl-C ends it with the best so far)";
  if (isatty(STDERR_FILENO) == 0) {
    std::fprintf(stderr, "%s\n", line.c_str());
    return;
  }
  std::fprintf(stderr, "\r%-*s", static_cast<int>(width_), line.c_str());
  std::fflush(stderr);
  width_ = line.size();
}

}  // namespace train_gpt

// Saves that go on beside training: a thread of each rank writes from the copy of its state
// (pipeline/train/state_copy.h) and neither computes nor talks to other ranks. It takes three stages - all ranks write,
// all read back and check, rank 0 gives the folder its name - between which the ranks meet: at the end of a step, whose
// votes tell when all are ready.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "commands/run/saving.h"
#include "pipeline/train/state_copy.h"

namespace train_gpt {

class BackgroundSaving {
 public:
  BackgroundSaving(Communicator& world, StateCopy& copy, const ModelConfig& model);
  ~BackgroundSaving();
  BackgroundSaving(const BackgroundSaving&) = delete;
  BackgroundSaving& operator=(const BackgroundSaving&) = delete;

  bool busy() const { return stage_ != Stage::idle; }
  // Training may go on when it returns. Collective; not while it is busy.
  void begin(const Saving& saving);
  // This rank has done its part of the stage.
  bool ready() const { return busy() && done_; }
  // For when every rank is ready. True: all is done. Collective. Throws what failed on this rank.
  bool advance();
  // Waits until all is done. Collective.
  void finish();

  const Saving& saving() const { return saving_; }
  // Seconds of a processor that this rank's thread took for it.
  double work_seconds() const { return work_seconds_; }

 private:
  enum class Stage { idle, writing, checking, naming };
  void work(const std::function<void()>& task);
  std::string partial(const std::string& name) const;

  Communicator& world_;
  StateCopy& copy_;
  const ModelConfig& model_;
  Saving saving_;
  Stage stage_ = Stage::idle;
  std::vector<SavedFile> files_;
  std::thread thread_;
  std::atomic<bool> done_ = false;
  std::exception_ptr failure_;
  double work_seconds_ = 0;
};

}  // namespace train_gpt

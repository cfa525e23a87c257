// Saves that go on beside training: a thread of each rank writes from the copy of its state
// (pipeline/train/state_copy.h) and neither computes nor talks to other ranks. There are three stages: all ranks write;
// all read back and check; rank 0 gives the folder its name. The votes at the end of a step tell when all ranks are
// ready for the next stage.
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
  // Starts a save; training may go on when this returns. Collective; not while busy().
  void begin(const Saving& saving);
  // True if this rank has done its part of the stage.
  bool ready() const { return busy() && done_; }
  // When every rank is ready(): begins the next stage; true: all is done. Collective. Throws this rank's failure.
  bool advance();
  // Waits until all is done. Collective.
  void finish();

  const Saving& saving() const { return saving_; }
  // Processor time of this rank's thread, in seconds.
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

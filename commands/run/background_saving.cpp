#include "commands/run/background_saving.h"

#include <ctime>

#include "commands/run/folder_swap.h"
#include "model/checkpoint.h"
#include "model/range_file.h"

namespace train_gpt {
namespace {

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

BackgroundSaving::BackgroundSaving(Communicator& world, StateCopy& copy, const ModelConfig& model)
    : world_(world), copy_(copy), model_(model) {}

BackgroundSaving::~BackgroundSaving() {
  if (thread_.joinable()) thread_.join();
}

std::string BackgroundSaving::partial(const std::string& name) const { return saving_.folder + kPartial + "/" + name; }

void BackgroundSaving::work(const std::function<void()>& task) {
  done_ = false;
  thread_ = std::thread([this, task] {
    const double begin = processor_seconds();
    try {
      task();
    } catch (...) {
      failure_ = std::current_exception();
    }
    work_seconds_ += processor_seconds() - begin;
    done_ = true;
  });
}

void BackgroundSaving::begin(const Saving& saving) {
  saving_ = saving;
  files_ = files_of(saving, model_);
  work_seconds_ = 0;
  if (world_.rank() == 0) {
    make_partial(saving_.folder);
    create_model_file(partial(kModelName), model_, Precision::fp32);
    if (saving_.moments) create_optimizer_file(partial(kOptimizerName), model_, copy_.optimizer());
  }
  world_.barrier();
  copy_.take(saving_.moments);
  stage_ = Stage::writing;
  work([this] {
    copy_.write_model(partial(kModelName));
    if (saving_.moments) copy_.write_moments(partial(kOptimizerName));
  });
}

bool BackgroundSaving::advance() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(failure_);
  switch (stage_) {
    case Stage::writing:
      stage_ = Stage::checking;
      work([this] {
        for (SavedFile& file : files_) {
          read_back(file, temporary_name(partial(file.name)), world_.rank(), world_.size());
        }
      });
      return false;
    case Stage::checking:
      stage_ = Stage::naming;
      work([this, written = checksums_of(world_, files_)] {
        if (world_.rank() != 0) return;
        for (const SavedFile& file : files_) publish(partial(file.name));
        complete(saving_, written);
      });
      return false;
    default:
      stage_ = Stage::idle;
      return true;
  }
}

void BackgroundSaving::finish() {
  while (busy()) {
    if (thread_.joinable()) thread_.join();
    world_.barrier();
    advance();
  }
}

}  // namespace train_gpt

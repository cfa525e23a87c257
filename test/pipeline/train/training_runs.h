// Short training runs of a tiny model on the local communicator, for comparing schedules bit by bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/device.h"
#include "pipeline/plan/execution_plan.h"

namespace train_gpt {
class Trainer;
}

namespace train_gpt::test {

struct Run {
  std::string schedule = "gpipe";
  int ranks = 1;  // of one pipeline
  int chunks = 0;
  int replicas = 1;
  int micro_batches = 4;
  std::int64_t rows = 1;
  int groups = 0;  // of the whole step; 0: one per replica and direction
  int zero = 0;    // --zero
  int warmup_factor = 1;
  int gradient_buffers = 2;
  bool error_feedback = false;  // --delay-correction
  int drain_every = 0;          // without a flush: empties the pipe every so many steps; 0: at the end alone
  int threads = 1;
  Partition partition = {};  // empty: uniform
  HeadForm head = HeadForm::streamed;
  std::vector<bool> recompute = {};
  bool tied = true;
  int steps = 3;
  int validate_every = 0;  // 0: never
  double grad_clip = 0.5;
  double peak_learning_rate = 1e-2;
  OptimizerKind optimizer = OptimizerKind::adamw;
  bool caches = false;           // generation keeps keys and values
  bool optimistic = false;       // --optimizer-step optimistic
  int first_step = 0;            // steps that an earlier run has taken
  int stop_after = -1;           // steps taken in all when this run stops; -1: `steps`
  std::string resume_from = {};  // a folder that save_to named; empty: initial values
  std::string save_to = {};      // folder for model.bin and optimizer.bin at the end; empty: none
  std::int64_t heads = 3;
  std::int64_t hidden = 24;
  std::function<std::unique_ptr<Device>()> make_device = {};  // empty: the cpu device
  std::int64_t layers = 3;
  std::int64_t vocab = 131;  // 131: the head is one shard
  bool hash_every_step = false;
  // Called on every rank before the first step and after the last one; collective.
  std::function<void(Trainer&)> before_training = {};
  std::function<void(Trainer&)> after_training = {};
};

inline constexpr std::int64_t kSeqLen = 16;
// The id at a position of a row of the step's batch; targets are those of the next position.
std::int32_t token(std::int64_t vocab, std::int64_t step, std::int64_t row, std::int64_t position);

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> validation;
  std::string hash;
  std::vector<std::string> hashes = {};  // after every step, with Run::hash_every_step
  int redone = 0;                        // optimistic steps that were taken back
  int steady = 0;                        // steps with a full pipe
  // Compares the numbers alone.
  bool operator==(const Outcome& other) const {
    return losses == other.losses && norms == other.norms && validation == other.validation && hash == other.hash &&
           hashes == other.hashes;
  }
};

// Random delays of up to this many milliseconds in every send, every receive and every action; 0: none.
struct Delays {
  double message = 0;
  double receive = 0;
  double action = 0;
};

// One rank's part; collective over `world`, whose size is ranks x replicas. The same on all ranks.
// `after_step` is called on every rank.
using AfterStep = std::function<void(std::int64_t step)>;
Outcome train_rank(Communicator& world, const Run& run, const Delays& delays = {}, const AfterStep& after_step = {});
// Likewise on a device of the caller's, in its precision.
Outcome train_rank(Communicator& world, Device& device, const Run& run, const Delays& delays = {},
                   const AfterStep& after_step = {});

// All ranks as threads. T 16; tokens from a formula; AdamW with clipping at 0.5.
Outcome train(const Run& run, const Delays& delays = {}, const AfterStep& after_step = {});

}  // namespace train_gpt::test

// The trainer: one rank's part in training a model. It owns the rank's memory and executor and takes the steps; the
// commands read options and tokens and write logs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/optimizer.h"
#include "pipeline/plan/execution_plan.h"
#include "pipeline/plan/lowering.h"
#include "pipeline/plan/shards.h"
#include "pipeline/train/executor.h"
#include "pipeline/train/groups.h"
#include "pipeline/train/measurement.h"
#include "pipeline/train/sampling.h"

namespace train_gpt {

// Reads row `row` (0 .. step_rows()-1 of the global batch) into `out` (T ids).
using ReadRow = std::function<void(std::int32_t* out, std::int64_t row)>;

// The ids of one step that a rank works on, (b,T) for each micro-batch: inputs of those in RankPlan::tokens, targets of
// those in RankPlan::targets.
struct Batch {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

struct OptimizerSettings {
  LearningRate learning_rate;
  AdamWConstants adamw;
  MuonConstants muon = {};  // where PlanRequest::optimizer says so
  double grad_clip = 1.0;
};

// Numbers that each rank adds to the report of a step, whose sums all ranks get; the caller gives them their meaning.
inline constexpr std::size_t kVotes = 12;
using Votes = std::array<double, kVotes>;

// A number that is not finite. All ranks know it and throw at the same place, so that one message is enough.
class NotFinite : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct StepResult {
  double loss = 0;       // mean over all valid targets of the step, the same on all ranks; timed device: not a number
  double grad_norm = 0;  // before clipping; timed device: not a number
  double learning_rate = 0;
  double ms = 0;                     // from the step's start to the end of its update, on this rank
  std::span<const RankTimes> times;  // of every rank of the job; valid until the next step
  bool redone = false;               // optimistic: the update was rolled back and done again with the true clip factor
  bool steady = false;               // without a flush: the pipe was full from the end of the step before to its end
  double norm_wait_ms = 0;           // without a flush: how long this rank waited for the norm of all ranks
  bool skipped = false;              // loss or norm was not finite, so nothing was updated (set_max_skipped)
  Votes votes{};                     // of all ranks, summed (set_votes)
};

// When a lowered action was issued, and when this rank spent time on it: from waiting for its result (reductions that
// run beside other actions) or working on it, to its end. An update is issued together with the norm, and begins once
// every rank knows the norm. A gather belongs to the step after its update, beside whose first actions it runs.
struct LoweredMarks {
  Device::Mark issued = 0;
  Device::Mark begin = 0;
  Device::Mark end = 0;
};

class Trainer {
 public:
  // Allocates all memory (the plan's, nothing later). The referenced objects outlive the trainer.
  Trainer(Device& device, Groups& groups, const Plan& plan, const OptimizerSettings& optimizer);
  // Removes its hooks from the device and the communicators.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Called every few milliseconds while the rank computes, and while it waits; may throw to end the run.
  void set_hooks(const std::function<void()>& while_computing, const std::function<void()>& while_waiting);

  // Opens channels and collectives, then makes a dry run where the device sets things up on first use, so that no
  // message waits for that. Collective; after the parameters are loaded and before the first step, validation or
  // measurement.
  void open();

  // Reads this rank's part of a step's rows into `batch`, which allocates on its first use alone.
  void read_batch(Batch& batch, const ReadRow& inputs, const ReadRow& targets) const;

  void initialise(std::uint64_t seed);
  void load(const ModelFile& file);
  void load_moments(const OptimizerFile& file);
  // The places in memory() of the parameters and moments that this rank writes to files; null: it writes none.
  const ArenaLayout* written_parameters() const;
  const ArenaLayout* written_moments() const;
  // Waits for the parameters that other replicas updated (--zero).
  void finish_gathers();
  // Collective. The files appear under their names when they are complete and on the disk.
  void save(const std::string& path, Precision precision);
  void save_moments(const std::string& path);

  // Collective; step counts from 0. Throws NotFinite if loss or norm is not finite.
  //
  // With PlanRequest::spare_parameters steps are optimistic if `next` is given, the batch of the step that the caller
  // takes immediately after this one: the parameters are updated on the assumption that nothing has to be clipped, and
  // the forwards of that step begin, while the norm is still on its way. Then the moments follow or, if the assumption
  // was wrong, update and forwards are rolled back. Results are those of steps without `next`, bit by bit.
  StepResult step(std::int64_t step, const Batch& batch, const Batch* next = nullptr);
  // Takes a step of a schedule without a flush (PlanRequest::flushless), in place of step(). `next` is the batch of the
  // step that the caller takes immediately after this one, some of whose forwards run ahead; without it the pipe is
  // drained, and only then can the trainer do anything else. Calls take(step, result) for every step whose numbers have
  // become known: the one before, and without `next` this one, too.
  using TakeResult = std::function<void(std::int64_t step, const StepResult& result)>;
  void flow(std::int64_t step, const Batch& batch, const Batch* next, const TakeResult& take);
  bool flowing() const { return flow_.open; }
  // Without a flush: the parameters of so many updates before the newest (age 1 .. older_versions()), which the next
  // steps compute with. initialise() and load() make them equal.
  int older_versions() const;  // of the rank that keeps most
  void load_previous(const ModelFile& file, int age = 1);
  void save_previous(const std::string& path, int age = 1);
  // With PlanRequest::error_feedback, likewise: the update of the last step, negative.
  void load_update(const ModelFile& file);
  void save_update(const std::string& path);
  // The first `steps` steps whose loss or norm is not finite are skipped instead of throwing NotFinite.
  void set_max_skipped(std::int64_t steps) { skips_left_ = steps; }
  // Asked at the end of each step for this rank's votes.
  void set_votes(std::function<Votes()> votes) { votes_ = std::move(votes); }
  // Mean loss over the valid targets of one batch of a step's size.
  double validate(const Batch& batch);
  // For each row of the global batch the sum of the losses of its valid targets. Collective; the same on all ranks. It
  // depends on the row's tokens alone, neither on the rows beside it nor on ranks and schedule.
  std::vector<double> row_losses(const Batch& batch);
  // Continues `ids` by `count` ids. `take` gets each new id on every rank, in order, and may end this by returning
  // false, on all ranks alike. Row 0 of micro-batch 0 holds the last T ids. The result depends on parameters, ids,
  // sampling and seed alone. Collective.
  void generate(std::vector<std::int32_t> ids, std::int64_t count, const Sampling& sampling, std::uint64_t seed,
                const std::function<bool(std::int32_t)>& take);
  // The name of a parameter that holds a value that is not finite; empty: all are finite. Collective.
  std::string non_finite_parameter();
  // 16 hex digits over all parameters in canonical order; collective. Throws std::runtime_error naming rank and tensor
  // if some rank's copy of a parameter (replicas, second direction, tied head) is not its owner's, bit for bit.
  std::string parameter_hash();

  // Median milliseconds of F, I and W of every virtual stage, measured on all ranks at once; collective. Changes no
  // state.
  StageCosts measure_stages();

  // Marks of the last training step's actions, and of what lower() adds to them.
  const std::vector<ActionMarks>& last_step_marks() const { return last_marks_; }
  const std::vector<LoweredAction>& lowered() const { return lowered_; }
  const std::vector<LoweredMarks>& lowered_marks() const { return lowered_marks_; }
  // How far the clock of this rank's host is ahead of that of rank 0; StepResult::times are on the latter.
  void set_clock_ahead(double ms) { clock_ahead_ms_ = ms; }
  double clock_ahead() const { return clock_ahead_ms_; }
  // A description of what the rank is doing now; valid at any time, also inside hooks.
  std::string doing() { return waits_for_ == nullptr ? executor_.doing() : std::string("waiting for ") + waits_for_; }
  Executor& executor() { return executor_; }
  const Executor& executor() const { return executor_; }
  const RankMemory& memory() const { return memory_; }

 private:
  void refresh_working_parameters();
  void refresh_working_parameters(int section);  // of RankPlan::sections
  void write_together(const std::string& path, const std::function<void()>& create,
                      const std::function<void()>& write_own);
  void load_zeros();
  void dry_run();
  void dry_run_reductions();
  void load_tokens(const Batch& batch, std::int64_t step = 0);
  float dloss() const;
  StepResult norm_then_update(std::int64_t step);
  StepResult norm_beside_update(std::int64_t step, const Batch& next);
  void micro_batch_losses(std::span<double> losses, const std::vector<Action>& list);
  double mean_loss(std::span<const double> losses) const;
  struct ReportParts;
  ReportParts report_parts();
  void begin_report(const RankTimes& times);
  void complete_report();
  StepResult read_report(std::int64_t step);
  std::string non_finite_number(std::span<const double> losses, std::span<const double> squared_sums) const;
  void require_finite_loss(double loss);
  bool settle(std::int64_t step, double norm);
  void update(std::int64_t step, double norm);
  void update_ahead(std::int64_t step);
  void commit_moments();
  void take_step(float* new_values, bool keep_moments);
  void load_scalars(std::int64_t step, float clip);
  OptimizerArenas arenas(float* new_values) const;
  void check_copies(const std::vector<std::uint64_t>& mine, const std::vector<std::uint64_t>& owners);
  bool draws_tokens() const;
  std::vector<float> next_logits();
  void issue_due(std::size_t done);
  void note_complete();
  void issue(std::size_t index);
  void await_reduction(std::size_t index);
  void time_lowered();
  bool is_over(std::size_t index);
  void finish_reduction(std::size_t index);
  void finish_reductions();
  void issue_gathers();
  // Without a flush, see trainer_flow.cpp.
  void fill(std::int64_t step, const Batch& batch);
  void close_window(std::int64_t step, bool steady);
  void settle_window(bool must);
  bool gradients_are_reduced(bool must);
  void take_window_step(std::int64_t step, double norm);
  void correct_window_step(std::int64_t step);
  void keep_version(std::int64_t step);
  void save_arena(const std::string& path, const float* values);
  void hand_out(const TakeResult& take);
  void copy_to_previous();
  // pipedream, see trainer_stash.cpp.
  void update_after(std::int64_t step, std::size_t action);
  void fill_stash(std::int64_t step);
  WeightStash::Place previous(int age) const;
  void before_action(ForwardUse use, std::size_t action);
  void await_needed(std::size_t action);
  void gather_for(const std::vector<Gathering>& list, std::size_t action);
  void begin_gathers();
  void begin_forwards();
  void prepare_windows();
  void gather_stage(int stage);
  Ticket start_gather(int section);
  // True under --zero with several replicas.
  bool shards() const { return plan_.request.zero > 0 && groups_.replicas != nullptr; }
  const Section& section(int index) const { return memory_.plan().sections[static_cast<std::size_t>(index)]; }
  ElementRange own_piece(const Section& section) const;
  struct OwnGradients {
    float* values = nullptr;
    std::int64_t elements = 0;
  };
  OwnGradients own_gradients(int section) const;
  void keep_own_gradients(int section);
  void sum_tied_gradients_here();
  // The parameters that this rank has from step to step, where they lie in memory_.parameters().
  bool has_parts() const { return memory_.plan().parameter_windows.has_value(); }
  const ArenaLayout& held() const { return has_parts() ? shard_.in_shard : memory_.plan().layout; }
  bool owns_held() const { return has_parts() ? groups_.is_first_of_mirrored() : groups_.owns_parameters(); }
  template <class Step>
  void for_each_piece(float* new_values, const Step& step);

  Device& device_;
  Groups& groups_;
  const Plan& plan_;
  OptimizerSettings optimizer_;
  RankMemory memory_;
  Executor executor_;
  std::vector<LoweredAction> lowered_;
  std::vector<LoweredMarks> lowered_marks_;  // parallel, of the last step
  std::size_t issued_ = 0;
  // A reduction under way; a null group: none, or complete.
  struct Running {
    Communicator* group = nullptr;
    Ticket ticket = 0;
    Device::Mark issued = 0;
    double ends = 0;  // timed device: in ms; 0: not all replicas have come
  };
  std::vector<Running> running_;                     // parallel to lowered_
  std::vector<float> met_;                           // timed device: reduced in place of gradients
  std::vector<double> timed_ms_;                     // timed device: [lowered_]
  double reduces_until_ = 0;                         // likewise, as Running::ends
  std::size_t update_at_ = 0;                        // of the update in lowered_; gathers follow it
  bool is_gathered_ = true;                          // what the next step's first actions need, or it is under way
  Shard shard_;                                      // --zero: what this replica owns
  std::vector<std::vector<std::int64_t>> low_cuts_;  // --zero 3: sections' cuts, in floats of the working parameters
  // Gathers of a forward-only list: those before next_gather_ have been issued.
  std::vector<Running> forward_gathers_;
  std::size_t next_gather_ = 0;
  const char* waits_for_ = nullptr;  // other than messages; null: nothing
  std::vector<std::int32_t> host_tokens_;
  std::vector<float> host_losses_;
  std::vector<double> host_sums_;  // of the atoms that this rank owns
  std::int64_t atoms_ = 0;         // of the model
  bool is_ahead_ = false;          // the next step has begun
  std::int64_t gradients_of_ = 0;  // the step whose gradients are reduced and applied
  // State without a flush. A step whose window has ended and whose update has not been made waits during the window of
  // the next.
  struct Flow {
    bool open = false;          // the pipe is not empty
    double window_begin_s = 0;  // of the window that runs
    double last_end_ms = 0;     // of its last action on this rank, in the window before
    std::int64_t waiting = -1;  // step; -1: none waits
    bool merging = false;       // its report is on its way
    bool has_update = false;    // RankMemory::last_update is one
    bool is_taken = false;      // its update was made before its norm was known
    Ticket merged = 0;
    std::size_t update_at = 0;  // actions of a window before the update by the step before it
    LoweredMarks updating;
    StepResult result;            // of the last step that was settled
    std::int64_t result_of = -1;  // step; -1: handed out
  };
  Flow flow_;
  std::optional<WeightStash> stash_;
  std::vector<double> report_;  // what ranks tell each other after a step: losses, times, norms
  std::vector<RankTimes> times_;
  std::vector<ActionMarks> last_marks_;
  double clock_ahead_ms_ = 0;
  std::int64_t skips_left_ = 0;
  std::function<Votes()> votes_ = [] { return Votes{}; };
};

}  // namespace train_gpt

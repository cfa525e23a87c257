// The executor runs one rank's list: wait for the input, run the action, hand the output to its channel. Everything
// hard (slots, buffers, channels) was decided by the plan. It knows neither MPI nor CUDA.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/device.h"
#include "pipeline/plan/execution_plan.h"
#include "pipeline/schedule/channels.h"
#include "pipeline/train/rank_memory.h"
#include "pipeline/train/weight_stash.h"

namespace train_gpt {

// When an action waited and worked, as marks of the device, which Device::time_ms turns into times after the step.
struct ActionMarks {
  Device::Mark wait_begin = 0;
  Device::Mark begin = 0;
  Device::Mark middle = 0;  // of a B, between I and W; `begin` of others, and where nothing is computed
  Device::Mark end = 0;
};

class Executor {
 public:
  // `pipeline` has the ranks of one pipeline. All referenced objects outlive this one.
  Executor(Device& device, Communicator& pipeline, const Plan& plan, RankMemory& memory);

  // Opens the pipeline's channels; collective.
  void open();

  // Optimistic steps (pipeline/plan/speculation.h): runs the first actions of the next training list, with the
  // parameters that are in memory now. The next train_step continues after them.
  void train_ahead(float dloss);
  // Undoes train_ahead: the next train_step begins from the start. Collective over the pipeline.
  void roll_back();

  // Runs the training list of this rank once: gradients are added to memory.gradients(), losses are written. `dloss` is
  // 1 / valid targets of the step. The caller has loaded tokens and targets. `after_action(i)` is called after action i
  // has been enqueued and its output is on its way.
  void train_step(float dloss, const std::function<void(std::size_t)>& after_action);
  // For schedules without a flush (Plan::window). A window with `next` alone, before the first step, fills the pipe;
  // windows with both keep it full; one without `next` empties it.
  struct Window {
    std::int64_t step = 0;
    bool own = true;   // its actions of this step
    bool next = true;  // its forwards of the step after
  };
  void begin_flow();
  void train_window(float dloss, const Window& window, const std::function<void(std::size_t)>& after_action);
  void end_flow();
  // The parameters that the actions of a step compute with: memory of RankMemory. To be set before the first of them.
  void set_version(std::int64_t step, const float* values, const void* low) {
    versions_[static_cast<std::size_t>(step % 2)] = {values, low};
  }

  // pipedream: what the micro-batches compute with, from now on.
  void set_stash(const WeightStash& stash) { stash_ = &stash; }

  // Runs the forward-only list: losses are written, nothing else changes.
  void validate();
  // Runs the list of generation: the logits at `position` of every row of micro-batch 0 arrive in memory.next_logits(),
  // on the head's rank. With PlanRequest::caches only row 0 is run; the cache holds its positions before `first`.
  void next_logits(std::int64_t first, std::int64_t position);

  // Runs one action outside of any list, on the buffers of its place in the training list: for measuring costs. Not for
  // B, whose I and W run one by one. Nothing is sent or received; gradients are added as always.
  void run_alone(const Action& action, float dloss);

  // Runs each stage's actions of one micro-batch, from the lists of training, validation and generation, on whatever is
  // in memory, often enough that gradients are both set and added to. So a device sets up everything that the first run
  // of an operation needs (code, plans of products) before any message waits. The caller has loaded tokens and targets;
  // gradients are added as always.
  void dry_run();

  // Called with the position of every action in the list, as part of the action's working time: for delays that tests
  // inject, and for the timed device, whose actions take no other time.
  void set_extra_work(std::function<void(std::size_t)> work) { extra_work_ = std::move(work); }

  // Called before an action waits for its input, with its position in the list.
  void set_before_action(std::function<void(ForwardUse, std::size_t)> before) { before_action_ = std::move(before); }

  // Marks of the last train_step or validate, parallel to the list that ran.
  const std::vector<ActionMarks>& marks() const { return marks_; }

  // A description of what the rank is doing now: "waiting for the activation of micro-batch 3 from rank 0, for 2F3".
  // Valid at any time, also inside hooks.
  std::string doing();

 private:
  struct StageProgress {
    std::int64_t forwards = 0;  // micro-batches done in this step; without a flush: since the pipe was filled
    std::int64_t weights = 0;
  };
  struct RingState {
    std::vector<Ticket> tickets;  // per slot
    std::int64_t posted = 0;      // receives started in this list
    std::int64_t taken = 0;       // messages of this list that were consumed
    std::int64_t sent = 0;        // in this list
    std::int64_t expected = 0;    // messages that may be received now: of the list, or of what runs ahead
    int ahead = 0;                // messages sent by actions that ran ahead
    std::array<std::vector<std::int64_t>, 3> bytes = {};  // of the messages that each list receives, by ForwardUse

    const std::vector<std::int64_t>& of(ForwardUse use) const { return bytes[static_cast<std::size_t>(use)]; }
    // Bytes of message number `message`; without a flush there are more messages than the list has.
    std::int64_t bytes_of(ForwardUse use, std::int64_t message) const {
      const std::vector<std::int64_t>& all = of(use);
      return all[static_cast<std::size_t>(message) % all.size()];
    }
  };
  struct Version {
    const float* values = nullptr;
    const void* low = nullptr;
  };

  // One rank's list, and parallel to it what each action works with.
  struct List {
    const std::vector<Action>& actions;
    const std::vector<ActionPlan>& plans;
  };
  List training_list() const;
  std::size_t begin();
  void run_actions(List list, std::size_t begin, std::size_t end, const std::function<void(std::size_t)>& after_action);
  // A message that an action of the list needs.
  struct Input {
    const Action* action = nullptr;
    int ring = -1;
    Ticket ticket = 0;
  };
  const Input* missing_input();
  void forget_list();
  void await_sends();
  void post_receives(std::size_t ring);
  void wait_for(const ActionPlan& plan);
  std::size_t place_of(int stage) const;
  void work(const Action& action, const ActionPlan& plan);
  int number_of_dry_runs() const;
  int micro_batches_before(const Action& action) const;
  bool flows() const { return use_ == ForwardUse::training && plan_.request.flushless(); }
  std::int64_t step_of_action(const Action& action) const;
  bool takes_part(const Action& action) const;
  int batch_place(const Action& action) const;
  Version version_of(const Action& action) const;
  ActionPlan with_slots(const Action& action, ActionPlan plan) const;
  ActionPlan plan_alone(const Action& action) const;
  void dry_run_window();
  float* gradients(int place) const;
  // The accumulation group (PlanRequest::local_groups) of a micro-batch, given how many of its stage came before it,
  // and the place of the group's sum.
  struct Group {
    int number = 0;
    int place = 0;  // of RankMemory::gradients
    bool begins = false;
    bool ends = false;
  };
  Group group_of(int micro_batches_before) const;
  template <class Visit>
  void for_each_range(const Action& action, const Visit& visit) const;
  void clear_gradients();
  void begin_group(const Action& action, const Group& group);
  void end_group(const Action& action, const Group& group);
  void send(const ActionPlan& plan);
  void fit_generation(std::int64_t positions);

  Device& device_;
  Communicator& pipeline_;
  const Plan& plan_;
  const RankPlan& rank_plan_;
  RankMemory& memory_;
  ChannelTable table_;
  std::vector<Stage> stages_;                                // parallel to rank_plan_.stages
  std::vector<std::vector<GradientRange>> gradient_ranges_;  // parallel to stages_
  std::vector<StageProgress> progress_;                      // parallel to stages_
  std::vector<RingState> rings_;
  std::vector<ActionMarks> marks_;
  Device::Mark middle_ = 0;                // ActionMarks::middle of the action that runs
  std::vector<Input> inputs_;              // of this list so far
  std::size_t next_missing_ = 0;           // all inputs before this one have arrived
  std::size_t actions_ahead_ = 0;          // how many of the training list may run ahead
  bool is_ahead_ = false;                  // they have run
  Window window_;                          // the one that runs
  std::array<Version, 2> versions_;        // of even and of odd steps
  const WeightStash* stash_ = nullptr;     // instead
  ForwardUse use_ = ForwardUse::training;  // of the list that runs
  float dloss_ = 0;
  std::int64_t first_position_ = 0, position_ = 0;  // of generation
  std::vector<ActionPlan> generation_;              // with messages of the positions that are computed
  bool updates_each_backward_ = false;              // pipedream: gradients are those of one micro-batch
  std::function<void(std::size_t)> extra_work_;
  std::function<void(ForwardUse, std::size_t)> before_action_;
  const Action* current_ = nullptr;
  enum class Phase : std::uint8_t { idle, waiting_for_input, waiting_for_send_slot, working } phase_ = Phase::idle;
  int waiting_ring_ = -1;
};

}  // namespace train_gpt

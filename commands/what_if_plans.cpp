// Rows of `train_gpt whatif` for other plans: the planner's prediction, scaled by the measured over the predicted time
// of the run's own plan.
#include <algorithm>
#include <stdexcept>

#include "commands/run/action_time.h"
#include "commands/run/command_line.h"
#include "commands/run/setup.h"
#include "commands/search_watch.h"
#include "commands/what_if_rows.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/planner/choose.h"
#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

void scale(std::vector<double>& values, double factor) {
  for (double& value : values) value *= factor;
}

class OtherPlans {
 public:
  OtherPlans(const WhatIf& what_if, const RecordHeader& header)
      : what_if_(what_if), header_(header), options_(options_of(header)) {
    own_ = request(what_if.schedule());
    own_.cut = ChoiceRequest::Cut::list;
    own_.partition = header.partition;
    own_.costs = header.timed ? given_costs() : unit_costs();
    const Choice now = choose(own_);
    to_ms_ = what_if.replayed_ms() / now.predicted.makespan;
  }

  const Options& options() const { return options_; }

  // `share`: the fraction of a step's tokens to which its time refers.
  WhatIfRow row(const std::string& what, const ChoiceRequest& request, const std::string& command, double share = 1) {
    const Choice choice = choose(request);
    if (!choice.fits) throw std::invalid_argument("does not fit the memory limit");
    WhatIfRow it{what, choice.predicted.makespan * to_ms_ * share, command, {}};
    StageCosts costs = choice.costs;
    for (std::vector<double>* pass : {&costs.forward, &costs.input, &costs.weight, &costs.fused}) scale(*pass, to_ms_);
    for (std::vector<Hop>* hops : {&costs.activation, &costs.gradient})
      for (Hop& hop : *hops) hop.latency *= to_ms_, hop.transfer *= to_ms_;
    const Schedule& schedule = choice.plan.request.schedule;
    it.replay = {schedule, choice.plan.request.partition, {}, costs, choice.predicted.makespan * to_ms_};
    for (int rank = 0; rank < schedule.ranks; ++rank)
      it.replay.durations.push_back(action_durations(schedule, costs, rank));
    last_partition_ = choice.plan.request.partition;
    return it;
  }

  ChoiceRequest with_schedule(const ScheduleRequest& wanted) const {
    ChoiceRequest other = own_;
    other.schedule = make_schedule(wanted);
    other.base.batch.micro_batches = wanted.micro_batches;
    other.ranks = wanted.ranks;
    other.cut = ChoiceRequest::Cut::measured;
    return other;
  }
  ChoiceRequest own_plan() const { return own_; }
  const Partition& last_partition() const { return last_partition_; }

 private:
  static Options options_of(const RecordHeader& header) {
    if (header.command.empty()) throw std::invalid_argument("the records do not say how the run was started");
    return parse_options({header.command.begin() + 1, header.command.end()});
  }

  ChoiceRequest request(const Schedule& schedule) const {
    PlanRequest base;
    base.model = header_.model;
    base.batch = batch_shape(options_, schedule);
    base.precision = header_.precision;
    base.spare_parameters = options_.optimizer.optimizer_step == OptimizerStep::optimistic;
    Options open = options_;
    open.pipeline.partition = {};
    open.pipeline.recompute = {};
    return choice_request(open, base, schedule, schedule.ranks, {});
  }

  // The costs given by --cost-*, scaled by the slowness of each rank.
  CostModel given_costs() const {
    Costs costs = options_.costs.costs;
    const int p = what_if_.schedule().ranks;
    std::vector<double>* const passes[3] = {&costs.forward, &costs.input, &costs.weight};
    for (int pass = 0; pass < 3; ++pass) {
      std::vector<double>& values = *passes[pass];
      if (values.size() == 1) values.assign(static_cast<std::size_t>(p), values[0]);
      if (values.size() != static_cast<std::size_t>(p)) continue;
      for (int rank = 0; rank < p; ++rank) values[static_cast<std::size_t>(rank)] *= what_if_.slowness(rank)[pass];
    }
    return given_cost_model(costs, header_.model, options_.batch.seq_len, p);
  }

  // The costs of units at the start of the run, scaled to the times of its stages; ranks as slow as they were.
  CostModel unit_costs() const {
    CostModel costs;
    costs.units = header_.units;
    costs.source = "of the records";
    const Schedule& schedule = what_if_.schedule();
    Passes measured{}, planned{};
    for (std::size_t s = 0; s < schedule.placement.stages.size(); ++s) {
      const std::vector<double>* const passes[3] = {&header_.planned.forward, &header_.planned.input,
                                                    &header_.planned.weight};
      for (int pass = 0; pass < 3; ++pass) {
        measured[pass] += what_if_.stage_mean(static_cast<int>(s))[pass];
        planned[pass] += (*passes[pass])[s];
      }
    }
    std::vector<double>* const units[3] = {&costs.units.forward, &costs.units.input, &costs.units.weight};
    double* const heads[3] = {&costs.units.streamed_head.forward, &costs.units.streamed_head.input,
                              &costs.units.streamed_head.weight};
    for (int pass = 0; pass < 3; ++pass) {
      const double factor = planned[pass] > 0 ? measured[pass] / planned[pass] : 1;
      scale(*units[pass], factor);
      *heads[pass] *= factor;
    }
    double mean = 0;
    for (int rank = 0; rank < schedule.ranks; ++rank) mean += what_if_.slowness_of_all(rank) / schedule.ranks;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const double known = header_.slowness.empty() ? 1 : header_.slowness[static_cast<std::size_t>(rank)];
      costs.slowness.push_back(known * what_if_.slowness_of_all(rank) / mean);
    }
    double latency = 0, hops = 0;
    for (std::size_t s = 0; s < schedule.placement.stages.size(); ++s) {
      const int previous = schedule.placement.stages[s].previous;
      if (previous < 0 ||
          schedule.placement.stages[static_cast<std::size_t>(previous)].rank == schedule.placement.stages[s].rank)
        continue;
      latency += what_if_.links().activation[s].total() + what_if_.links().gradient[s].total();
      hops += 2;
    }
    if (hops > 0) costs.links.latency = {latency / hops};
    return costs;
  }

  const WhatIf& what_if_;
  const RecordHeader& header_;
  Options options_;
  ChoiceRequest own_;
  double to_ms_ = 1;
  Partition last_partition_;
};

std::string list_of(const std::vector<int>& values) {
  std::string text;
  for (const int value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

bool is_named(const std::string& name) {
  const std::vector<std::string>& names = schedule_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<WhatIfRow> rows_of_other_plans(const WhatIf& what_if, const RecordHeader& header, std::int64_t memory_limit,
                                           std::vector<std::string>& notes) {
  std::vector<WhatIfRow> rows;
  const Schedule& schedule = what_if.schedule();
  const int p = schedule.ranks, m = schedule.micro_batches, jobs = header.ranks;
  if (schedule.placement.kind == Placement::Kind::bidirectional) {
    notes.emplace_back("other plans are not looked at beside two copies of the parameters");
    return rows;
  }
  OtherPlans plans(what_if, header);
  const std::vector<std::string>& words = header.command;
  const auto attempt = [&](const std::string& what, const std::function<WhatIfRow()>& make) {
    try {
      rows.push_back(make());
    } catch (const std::invalid_argument& reason) {
      notes.push_back(what + ": " + reason.what());
    }
  };
  for (const std::string& name : schedule_names()) {
    const ScheduleRequest wanted{.name = name, .ranks = p, .micro_batches = m};
    if (name == schedule.name || placement_kind(name) == Placement::Kind::bidirectional || violation(wanted)) continue;
    if (p * default_chunks(name) > unit_count(header.model)) continue;
    attempt(name, [&] {
      return plans.row(
          "schedule " + name, plans.with_schedule(wanted),
          command_otherwise(words, jobs, {"--schedule", "--schedule-file", "--chunks", "--group-size", "--partition"},
                            "--schedule " + name));
    });
  }
  if (!header.timed) {
    ChoiceRequest cut = plans.own_plan();
    cut.cut = ChoiceRequest::Cut::measured;
    cut.partition = {};
    attempt("cut", [&] {
      WhatIfRow row = plans.row("", cut, "");
      const std::string list = list_of(plans.last_partition());
      row.what = "cut " + list;
      row.command = command_otherwise(words, jobs, {"--partition"}, "--partition " + list);
      return row;
    });
  }
  if (is_named(schedule.name)) {
    attempt("twice the micro-batches", [&] {
      const ScheduleRequest more{.name = schedule.name, .ranks = p, .micro_batches = 2 * m, .chunks = schedule.chunks};
      ChoiceRequest request = plans.with_schedule(more);
      request.cut = ChoiceRequest::Cut::list;
      return plans.row("twice the micro-batches, for the same tokens", request,
                       command_otherwise(words, jobs, {"--micro-batches", "--global-batch-size"},
                                         "--micro-batches " + std::to_string(2 * m)),
                       0.5);
    });
    if (2 * p * schedule.chunks <= unit_count(header.model)) {
      attempt("twice the ranks", [&] {
        ChoiceRequest request =
            plans.with_schedule({.name = schedule.name, .ranks = 2 * p, .micro_batches = m, .chunks = schedule.chunks});
        request.costs.slowness.clear();
        if (request.costs.given) {
          Costs& given = *request.costs.given;
          for (std::vector<double>* pass : {&given.forward, &given.input, &given.weight, &given.fused}) {
            double sum = 0;
            for (const double value : *pass) sum += value;
            if (!pass->empty()) *pass = {sum / static_cast<double>(pass->size()) / 2};
          }
        }
        // The given costs are those of a rank's share, which would be another one.
        const std::string command = header.timed ? "" : command_otherwise(words, 2 * jobs, {"--partition"}, "");
        return plans.row("on " + std::to_string(2 * p) + " ranks per pipeline", request, command);
      });
    }
  }
  if (memory_limit > 0) {
    const std::string limit = format_bytes(memory_limit);
    attempt("with " + limit + " per rank", [&] {
      ChoiceRequest request = plans.own_plan();
      request.cut = ChoiceRequest::Cut::measured;
      request.partition = {};
      request.memory_limit = memory_limit;
      request.recompute = ChoiceRequest::Recompute::automatic;
      return plans.row("with " + limit + " per rank", request,
                       command_otherwise(words, jobs, {"--memory-limit", "--recompute", "--partition"},
                                         "--recompute auto --memory-limit " + std::to_string(memory_limit)));
    });
  }
  return rows;
}

}  // namespace train_gpt

#include "pipeline/measure/trace.h"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "pipeline/schedule/channels.h"

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kActions = 0, kReductions = 1;  // threads

const char* category(Op op) {
  switch (op) {
    case Op::forward:
      return "forward";
    case Op::backward:
      return "backward";
    case Op::backward_input:
      return "backward_input";
    case Op::backward_weight:
      return "backward_weight";
  }
  throw std::logic_error("an operation without a name");
}

class Writer {
 public:
  Writer(std::ostream& out, double zero) : out_(out), zero_(zero) {
    out_ << R"({"displayTimeUnit":"ms","traceEvents":[)";
  }
  void close() { out_ << "\n]}\n"; }

  void event(const Json& json) {
    // The name of a schedule file may hold bytes that are not UTF-8: they are replaced.
    out_ << (first_ ? "\n" : ",\n") << json.dump(-1, ' ', false, Json::error_handler_t::replace);
    first_ = false;
  }
  void name(const char* what, int rank, int thread, const std::string& value) {
    event({{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", value}}}});
  }
  void slice(const std::string& label, const char* kind, int rank, int thread, double begin, double end,
             Json arguments) {
    event({{"ph", "X"},
           {"name", label},
           {"cat", kind},
           {"pid", rank},
           {"tid", thread},
           {"ts", microseconds(begin)},
           {"dur", (end - begin) * 1000},
           {"args", std::move(arguments)}});
  }
  // One end of an arrow, inside the slice that it belongs to.
  void flow_end(bool starts, std::int64_t id, const char* kind, int rank, double at) {
    Json json = {{"ph", starts ? "s" : "f"}, {"name", kind},          {"cat", "message"}, {"id", id}, {"pid", rank},
                 {"tid", kActions},          {"ts", microseconds(at)}};
    if (!starts) json["bp"] = "e";
    event(json);
  }

 private:
  double microseconds(double ms) const { return (ms - zero_) * 1000; }

  std::ostream& out_;
  double zero_;
  bool first_ = true;
};

void write_names(Writer& writer, const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::string stages;
    for (const int stage : schedule.placement.stages_of(rank)) {
      stages += (stages.empty() ? "" : ", ") + std::to_string(stage);
    }
    writer.name("process_name", rank, kActions, "rank " + std::to_string(rank) + ": virtual stage " + stages);
    writer.event({{"ph", "M"},
                  {"name", "process_sort_index"},
                  {"pid", rank},
                  {"tid", kActions},
                  {"args", {{"sort_index", rank}}}});
    writer.name("thread_name", rank, kActions, "actions");
    writer.name("thread_name", rank, kReductions, "reductions");
  }
}

void write_rank(Writer& writer, const std::vector<Action>& list, const MeasuredRank& measured, int rank,
                std::int64_t step, bool flushes) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const MeasuredAction& it = measured.actions[i];
    const std::string name = to_string(list[i]);
    if (it.begin - it.wait_begin >= kShortestWaitMs) {
      writer.slice("wait", "wait", rank, kActions, it.wait_begin, it.begin, {{"step", step}, {"before", name}});
    }
    writer.slice(name, category(list[i].op), rank, kActions, it.begin, it.end,
                 {{"step", step}, {"stage", list[i].stage}, {"micro_batch", list[i].micro_batch}});
  }
  for (const MeasuredLowered& it : measured.lowered) {
    if (it.letter == 'U') {
      // Without a flush the norm is summed beside actions of the next step.
      writer.slice("norm", "post_flush", rank, flushes ? kActions : kReductions, it.issued, it.begin, {{"step", step}});
      writer.slice("U", "post_flush", rank, kActions, it.begin, it.end, {{"step", step}});
    } else {
      writer.slice(std::string(1, it.letter), "post_flush", rank, kReductions, it.issued, it.end, {{"step", step}});
    }
  }
}

// The k-th consumer of a channel takes what its k-th producer made.
void write_flows(Writer& writer, const Schedule& schedule, const MeasuredStep& step, std::int64_t& id) {
  const ChannelTable table(schedule.placement);
  std::vector<std::deque<std::int64_t>> sent(table.channels().size());  // ids of messages not taken yet
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (std::size_t i = 0; i < schedule.actions(rank).size(); ++i) {
      const int channel = table.messages(schedule.actions(rank)[i]).produces;
      if (channel < 0) continue;
      const bool activation = table.channels()[static_cast<std::size_t>(channel)].kind == Channel::Kind::activation;
      const MeasuredAction& it = step.ranks[static_cast<std::size_t>(rank)].actions[i];
      constexpr double kInside = 0.001;  // an arrow leaves at the end of its slice, but within it
      sent[static_cast<std::size_t>(channel)].push_back(id);
      writer.flow_end(true, id++, activation ? "activation" : "gradient", rank,
                      std::max(it.end - kInside, (it.begin + it.end) / 2));
    }
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (std::size_t i = 0; i < schedule.actions(rank).size(); ++i) {
      const int channel = table.messages(schedule.actions(rank)[i]).consumes;
      if (channel < 0) continue;
      std::deque<std::int64_t>& waiting = sent[static_cast<std::size_t>(channel)];
      if (waiting.empty()) throw std::logic_error("a message is taken that nobody sends");
      const bool activation = table.channels()[static_cast<std::size_t>(channel)].kind == Channel::Kind::activation;
      writer.flow_end(false, waiting.front(), activation ? "activation" : "gradient", rank,
                      step.ranks[static_cast<std::size_t>(rank)].actions[i].begin);
      waiting.pop_front();
    }
  }
}

}  // namespace

void write_trace(std::ostream& out, const Schedule& schedule, const std::vector<MeasuredStep>& steps) {
  Writer writer(out, steps.empty() ? 0.0 : steps.front().first_start());
  write_names(writer, schedule);
  std::int64_t id = 0;
  for (const MeasuredStep& step : steps) {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      write_rank(writer, schedule.actions(rank), step.ranks[static_cast<std::size_t>(rank)], rank, step.step,
                 schedule.steps == 1);
    }
    if (schedule.steps == 1) write_flows(writer, schedule, step, id);  // others come from the window before
  }
  writer.close();
}

}  // namespace train_gpt

#include "commands/run/record_header.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands/run/command_line.h"
#include "commands/run/training_run.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;

Json json_of(const std::vector<Hop>& hops) {
  Json array = Json::array();
  for (const Hop& hop : hops) array.push_back({hop.latency, hop.transfer, hop.bytes});
  return array;
}

std::vector<Hop> hops_of(const Json& array) {
  std::vector<Hop> hops;
  for (const Json& it : array) hops.push_back({it.at(0), it.at(1), it.at(2)});
  return hops;
}

Json json_of(const Schedule& schedule) {
  Json stages = Json::array();
  for (const Placement::VirtualStage& s : schedule.placement.stages)
    stages.push_back({s.rank, s.copy, s.model_stage, s.previous, s.next, s.first_micro_batch, s.last_micro_batch});
  Json lists = Json::array();
  for (const std::vector<Action>& list : schedule.lists) {
    Json row = Json::array();
    for (const Action& a : list) row.push_back({static_cast<int>(a.op), a.fused_with_next, a.stage, a.micro_batch});
    lists.push_back(std::move(row));
  }
  return {
      {"name", schedule.name},     {"kind", static_cast<int>(schedule.placement.kind)}, {"ranks", schedule.ranks},
      {"chunks", schedule.chunks}, {"micro_batches", schedule.micro_batches},           {"stages", std::move(stages)},
      {"lists", std::move(lists)}};
}

Schedule schedule_of(const Json& json) {
  Schedule schedule;
  schedule.name = json.at("name");
  schedule.ranks = json.at("ranks");
  schedule.chunks = json.at("chunks");
  schedule.micro_batches = json.at("micro_batches");
  schedule.placement.kind = static_cast<Placement::Kind>(json.at("kind").get<int>());
  schedule.placement.ranks = schedule.ranks;
  schedule.placement.chunks = schedule.chunks;
  for (const Json& s : json.at("stages"))
    schedule.placement.stages.push_back({s.at(0), s.at(1), s.at(2), s.at(3), s.at(4), s.at(5), s.at(6)});
  const int stages = static_cast<int>(schedule.placement.stages.size());
  for (const Json& list : json.at("lists")) {
    std::vector<Action>& row = schedule.lists.emplace_back();
    for (const Json& a : list) {
      row.push_back({static_cast<Op>(a.at(0).get<int>()), a.at(1), a.at(2), a.at(3)});
      const Action& it = row.back();
      if (it.stage < 0 || it.stage >= stages || it.micro_batch < 0 || it.micro_batch >= schedule.micro_batches)
        throw std::invalid_argument("an action of a stage or micro-batch that the schedule does not have");
    }
  }
  return schedule;
}

}  // namespace

std::string to_json(const RecordHeader& header) {
  const ModelConfig& m = header.model;
  const UnitCosts& u = header.units;
  const PassCosts& head = u.streamed_head;
  Json json = {{"command", header.command},
               {"ranks", header.ranks},
               {"model", {m.layers, m.heads, m.hidden, m.vocab, m.max_seq_len, m.tied}},
               {"bf16", header.precision == Precision::bf16},
               {"timed", header.timed},
               {"schedule", json_of(header.schedule)},
               {"planned",
                {{"forward", header.planned.forward},
                 {"input", header.planned.input},
                 {"weight", header.planned.weight},
                 {"fused", header.planned.fused},
                 {"activation", json_of(header.planned.activation)},
                 {"gradient", json_of(header.planned.gradient)}}},
               {"partition", header.partition},
               {"units",
                {{"forward", u.forward},
                 {"input", u.input},
                 {"weight", u.weight},
                 {"streamed_head", {head.forward, head.input, head.weight}},
                 {"first_head", u.first_head}}},
               {"slowness", header.slowness}};
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

RecordHeader record_header_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    RecordHeader header;
    header.command = json.at("command").get<std::vector<std::string>>();
    header.ranks = json.at("ranks");
    const Json& m = json.at("model");
    header.model = {m.at(0), m.at(1), m.at(2), m.at(3), m.at(4), m.at(5)};
    header.precision = json.at("bf16").get<bool>() ? Precision::bf16 : Precision::fp32;
    header.timed = json.at("timed");
    header.schedule = schedule_of(json.at("schedule"));
    const Json& planned = json.at("planned");
    header.planned.forward = planned.at("forward").get<std::vector<double>>();
    header.planned.input = planned.at("input").get<std::vector<double>>();
    header.planned.weight = planned.at("weight").get<std::vector<double>>();
    header.planned.fused = planned.at("fused").get<std::vector<double>>();
    header.planned.activation = hops_of(planned.at("activation"));
    header.planned.gradient = hops_of(planned.at("gradient"));
    header.partition = json.at("partition").get<std::vector<int>>();
    const Json& units = json.at("units");
    header.units.forward = units.at("forward").get<std::vector<double>>();
    header.units.input = units.at("input").get<std::vector<double>>();
    header.units.weight = units.at("weight").get<std::vector<double>>();
    const Json& head = units.at("streamed_head");
    header.units.streamed_head = {head.at(0), head.at(1), head.at(2)};
    header.units.first_head = units.at("first_head");
    header.slowness = json.at("slowness").get<std::vector<double>>();
    return header;
  } catch (const Json::exception& error) {
    throw std::invalid_argument(std::string("its header is damaged: ") + error.what());
  }
}

std::string record_header(const TrainingRun& run) {
  return to_json({.command = own_command_line(),
                  .ranks = run.session.world().size(),
                  .model = run.inputs.model,
                  .precision = run.plan.request.precision,
                  .timed = run.session.is_timed(),
                  .schedule = run.plan.request.schedule,
                  .planned = run.planned,
                  .partition = run.plan.request.partition,
                  .units = run.decided.unit_costs.units,
                  .slowness = run.decided.unit_costs.slowness});
}

}  // namespace train_gpt

// The header of records.bin: a description of the run, so that its steps can be simulated again with changes.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "pipeline/planner/unit_costs.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct TrainingRun;

struct RecordHeader {
  std::vector<std::string> command;  // the words of the run's command line, the program's name first
  int ranks = 1;                     // of the job
  ModelConfig model;
  Precision precision = Precision::fp32;
  bool timed = false;  // on the timed device
  Schedule schedule;
  StageCosts planned;            // of its stages, links included
  std::vector<int> partition;    // units of every model stage
  UnitCosts units;               // from which the cut was chosen
  std::vector<double> slowness;  // [rank], from which the cut was chosen
};

std::string record_header(const TrainingRun& run);
std::string to_json(const RecordHeader& header);
// Throws std::invalid_argument naming what is wrong.
RecordHeader record_header_from_json(const std::string& text);

}  // namespace train_gpt

// The options under each heading of --help, which options_table.h puts together, and sets of commands and limits that
// several of them share.
#pragma once

#include <cstdint>
#include <vector>

#include "commands/cli/options_table.h"

namespace train_gpt {

// options_of_model.cpp
std::vector<OptionSpec> data_options();
std::vector<OptionSpec> model_options();
std::vector<OptionSpec> batch_options();
std::vector<OptionSpec> optimizer_options();
// options_of_run.cpp
std::vector<OptionSpec> run_options();
// options_of_pipeline.cpp
std::vector<OptionSpec> pipeline_options();
std::vector<OptionSpec> device_options();
std::vector<OptionSpec> cost_options();
std::vector<OptionSpec> cluster_options();
// options_of_commands.cpp
std::vector<OptionSpec> output_options();
std::vector<OptionSpec> testing_options();
std::vector<OptionSpec> prepare_options();
std::vector<OptionSpec> convert_options();
std::vector<OptionSpec> generate_options();

inline constexpr CommandSet kTrain = only(Command::train);
inline constexpr CommandSet kEvaluate = only(Command::evaluate);
inline constexpr CommandSet kSimulate = only(Command::simulate);
inline constexpr CommandSet kPlan = only(Command::plan);
inline constexpr CommandSet kProfile = only(Command::profile);
inline constexpr CommandSet kPrepare = only(Command::prepare);
inline constexpr CommandSet kConvert = only(Command::convert);
inline constexpr CommandSet kGenerate = only(Command::generate);
inline constexpr CommandSet kStatus =
    only(Command::status) | only(Command::checkpoint) | only(Command::report) | only(Command::whatif);
inline constexpr CommandSet kWhatIf = only(Command::whatif);
inline constexpr CommandSet kSized = kTrain | kPlan | kProfile | kSimulate;  // describe a model
inline constexpr CommandSet kPipelined = kTrain | kEvaluate | kPlan;         // run or plan a pipeline
inline constexpr CommandSet kComputing = kPipelined | kProfile | kGenerate;  // use a device

inline constexpr int kLargestCount = 1 << 20;                        // ranks
inline constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;  // sizes of a model or a batch
inline constexpr double kLargestTime = 1e9;                          // seconds, 30 years
inline constexpr std::int64_t kLargestSteps = std::int64_t{1} << 40;
inline constexpr double kLargestCost = 1e12;  // ms, 30 years: timelines and sums of them stay finite

}  // namespace train_gpt

#include "commands/run/best_model.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "commands/cli/wording.h"
#include "commands/run/file_identity.h"
#include "commands/run/folder_swap.h"
#include "commands/run/run_tokenizer.h"
#include "commands/run/told.h"
#include "data/temporary_file.h"

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kRecord = "validation.json";

std::string record_text(const BestRecord& record) {
  const Json json = {{"format", "train_gpt best model"},
                     {"version", 1},
                     {"step", record.step},
                     {"validation_loss", record.loss},
                     {"validated_on", record.measure}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::optional<BestRecord> best_record(const std::string& output) {
  std::ifstream file(BestModel::folder_in(output) + "/" + kRecord);
  if (!file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    const Json json = Json::parse(text);
    BestRecord record;
    json.at("step").get_to(record.step);
    json.at("validation_loss").get_to(record.loss);
    json.at("validated_on").get_to(record.measure);
    return record;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<std::string> tidy_best(const std::string& output, std::int64_t step, bool goes_back) {
  const std::string folder = BestModel::folder_in(output);
  finish_taking_place(folder);
  const std::optional<BestRecord> record = best_record(output);
  if (!goes_back || !record || record->step <= step) return std::nullopt;
  const std::string aside = folder + ".set-aside";
  remove_folder(aside);
  rename_folder(folder, aside);
  return folder + ", of after " + counted(record->step, "step") + ", was set aside as " + aside;
}

void BestModel::find(Communicator& world) {
  std::string found;
  if (world.rank() == 0) {
    const std::optional<BestRecord> record = best_record(output_);
    if (record && record->measure == measure_) found = Json(record->loss).dump();
  }
  found = told_by_first(world, std::move(found));
  if (!found.empty()) loss_ = Json::parse(found).get<double>();
}

Saving BestModel::saving(std::int64_t step, double loss, const std::optional<Tokenizer>& tokenizer) {
  loss_ = loss;
  return {.folder = folder(),
          .moments = false,
          .seal =
              [&tokenizer, record = BestRecord{step, loss, measure_}](const std::string& partial, const auto&) {
                keep_tokenizer(tokenizer, partial);
                TemporaryFile file(partial + "/" + kRecord);
                file.append(record_text(record));
                file.flush();
                file.commit();
              },
          .told = "the best model so far, after " + counted(step, "update") + ", is in " + folder()};
}

std::string validation_measure(const TokenDataset& data, std::int64_t batches, std::int64_t rows) {
  std::string text = std::to_string(batches) + (batches == 1 ? " batch of " : " batches of ") + counted(rows, "row") +
                     " of " + counted(data.seq_len(), "token") + " of";
  for (const TokenFile& shard : data.shards()) {
    const FileIdentity file = identity_of(shard.path());
    text += " " + file.name + " (" + counted(file.bytes, "byte") + ", checksum " + file.checksum + ")";
  }
  return text;
}

}  // namespace train_gpt

#include "data/prepare_journal.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/temporary_file.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;

Json to_json(const ShardState& state) {
  Json documents = Json::array();
  for (const Manifest::Document& one : state.documents) {
    documents.push_back({{"file", one.file}, {"first_token", one.first_token}, {"tokens", one.tokens}});
  }
  return {{"shard", state.shard}, {"tokens", state.tokens}, {"total", state.total}, {"documents", documents}};
}

ShardState state_from(const Json& json) {
  ShardState state{json.at("shard"), json.at("tokens"), json.at("total"), {}};
  for (const Json& one : json.at("documents")) {
    state.documents.push_back({one.at("file"), one.at("first_token"), one.at("tokens")});
  }
  return state;
}

}  // namespace

std::optional<PrepareJournal> read_journal(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  try {
    const Json json = Json::parse(file);
    const Json& place = json.at("place");
    return PrepareJournal{json.at("request"),
                          {place.at("file"), place.at("byte"), place.at("line"), place.at("document")},
                          json.at("empty"),
                          UnknownCharacters(json.at("unknown").get<std::set<char32_t>>()),
                          state_from(json.at("train")),
                          state_from(json.at("validation"))};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void write_journal(const std::string& path, const PrepareJournal& journal) {
  const DocumentPlace& place = journal.place;
  const Json json = {
      {"request", journal.request},
      {"place", {{"file", place.file}, {"byte", place.byte}, {"line", place.line}, {"document", place.document}}},
      {"empty", journal.empty},
      {"unknown", journal.unknown.seen()},
      {"train", to_json(journal.train)},
      {"validation", to_json(journal.validation)}};
  TemporaryFile file(path);
  file.append(json.dump(1, ' ', false, Json::error_handler_t::replace));
  file.flush();
  file.commit();
}

}  // namespace train_gpt

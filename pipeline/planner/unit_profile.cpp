#include "pipeline/planner/unit_profile.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 2;

Json to_json(const Spread& spread) { return {{"median", spread.median}, {"min", spread.least}, {"max", spread.most}}; }

Spread spread_from(const Json& json) { return {json.at("median"), json.at("min"), json.at("max")}; }

Json to_json(const RankProfile& rank) {
  Json json;
  for (int form = 0; form < kUnitForms; ++form) {
    const UnitTimes& times = rank[static_cast<std::size_t>(form)];
    json[to_string(static_cast<UnitForm>(form))] = {
        {"forward", to_json(times.forward)}, {"input", to_json(times.input)}, {"weight", to_json(times.weight)}};
  }
  return json;
}

RankProfile rank_from(const Json& json) {
  RankProfile rank;
  for (int form = 0; form < kUnitForms; ++form) {
    const Json& times = json.at(to_string(static_cast<UnitForm>(form)));
    rank[static_cast<std::size_t>(form)] = {spread_from(times.at("forward")), spread_from(times.at("input")),
                                            spread_from(times.at("weight"))};
  }
  return rank;
}

void check_spread(const Spread& spread) {
  if (spread.least >= 0 && spread.least <= spread.median && spread.median <= spread.most) return;
  throw std::invalid_argument("a median of " + std::to_string(spread.median) + " ms is not between its min and max");
}

void check_times(const Profile& profile) {
  if (profile.ranks.empty()) throw std::invalid_argument("it has no ranks");
  for (const RankProfile& rank : profile.ranks) {
    for (const UnitTimes& times : rank) {
      for (const Spread& spread : {times.forward, times.input, times.weight}) check_spread(spread);
    }
  }
  for (const MessageTime& message : profile.messages) check_spread(message.one_way);
  const std::size_t p = profile.ranks.size();
  if (!profile.links.empty() && profile.links.size() != (p > 2 ? p : p - 1))
    throw std::invalid_argument("it has " + std::to_string(profile.links.size()) + " links between " +
                                std::to_string(p) + " ranks");
  for (const LinkTime& link : profile.links) {
    if (!(link.latency >= 0) || !(link.bandwidth >= 0)) throw std::invalid_argument("a link has a negative time");
  }
}

Profile profile_from(const Json& json) {
  if (json.at("version") != kVersion) throw std::invalid_argument("its version is not " + std::to_string(kVersion));
  Profile profile;
  profile.device = json.at("device");
  const Json& sizes = json.at("sizes");
  profile.sizes = {.heads = sizes.at("heads"),
                   .hidden = sizes.at("hidden"),
                   .vocab = sizes.at("vocab"),
                   .micro_batch_size = sizes.at("micro_batch_size"),
                   .seq_len = sizes.at("seq_len"),
                   .precision = sizes.at("precision") == "bf16" ? Precision::bf16 : Precision::fp32};
  for (const Json& rank : json.at("ranks")) profile.ranks.push_back(rank_from(rank));
  for (const Json& message : json.at("messages")) {
    profile.messages.push_back({message.at("bytes"), spread_from(message.at("one_way"))});
  }
  for (const Json& link : json.value("links", Json::array())) {
    profile.links.push_back({link.at("latency"), link.at("bandwidth")});
  }
  check_times(profile);
  return profile;
}

std::string table_line(const char* name, const char* pass, const Spread& spread) {
  char text[160];
  std::snprintf(text, sizeof text, "%-14s %-16s %10.3f %10.3f %10.3f\n", name, pass, spread.median, spread.least,
                spread.most);
  return text;
}

}  // namespace

const char* to_string(UnitForm form) {
  constexpr const char* kNames[] = {"embedding", "attention", "mlp", "head streamed", "head first", "head shard"};
  return kNames[static_cast<std::size_t>(form)];
}

int measured_shard(const ModelConfig& model) { return std::min(1, head_shards(model) - 1); }

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

ProfileSizes profile_sizes(const ModelConfig& model, std::int64_t rows, std::int64_t seq_len, Precision precision) {
  return {.heads = model.heads,
          .hidden = model.hidden,
          .vocab = model.vocab,
          .micro_batch_size = rows,
          .seq_len = seq_len,
          .precision = precision};
}

double message_latency(const Profile& profile) {
  return profile.messages.empty() ? 0 : profile.messages.front().one_way.median;
}

double message_bandwidth(const Profile& profile) {
  if (profile.messages.empty()) return 0;
  const MessageTime& longest = profile.messages.back();
  const double ms = longest.one_way.median - message_latency(profile);
  return ms > 0 ? static_cast<double>(longest.bytes) / (ms * 1e6) : 0;
}

bool links_differ(const Profile& profile) {
  constexpr double kAlike = 2;
  double least_ms = 0, most_ms = 0, least_rate = 0, most_rate = 0;
  for (const LinkTime& link : profile.links) {
    const bool first = &link == &profile.links.front();
    least_ms = first ? link.latency : std::min(least_ms, link.latency);
    most_ms = std::max(most_ms, link.latency);
    if (link.bandwidth <= 0) continue;
    least_rate = least_rate > 0 ? std::min(least_rate, link.bandwidth) : link.bandwidth;
    most_rate = std::max(most_rate, link.bandwidth);
  }
  return most_ms > kAlike * least_ms || most_rate > kAlike * least_rate;
}

void save_profile(const Profile& profile, const std::string& path) {
  const ProfileSizes& sizes = profile.sizes;
  Json json = {{"version", kVersion},
               {"device", profile.device},
               {"sizes",
                {{"heads", sizes.heads},
                 {"hidden", sizes.hidden},
                 {"vocab", sizes.vocab},
                 {"micro_batch_size", sizes.micro_batch_size},
                 {"seq_len", sizes.seq_len},
                 {"precision", sizes.precision == Precision::bf16 ? "bf16" : "fp32"}}},
               {"unit", "ms"},
               {"ranks", Json::array()},
               {"messages", Json::array()}};
  for (const RankProfile& rank : profile.ranks) json["ranks"].push_back(to_json(rank));
  for (const MessageTime& message : profile.messages) {
    json["messages"].push_back({{"bytes", message.bytes}, {"one_way", to_json(message.one_way)}});
  }
  json["links"] = Json::array();
  for (const LinkTime& link : profile.links) {
    json["links"].push_back({{"latency", link.latency}, {"bandwidth", link.bandwidth}});
  }
  std::ofstream file(path);
  file << json.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error("--profile " + path + " cannot be written");
}

Profile load_profile(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw std::invalid_argument("--profile " + path + " cannot be read; `train_gpt profile` writes such files");
  try {
    return profile_from(Json::parse(file));
  } catch (const std::exception& error) {
    throw std::invalid_argument("--profile " + path +
                                " is not a profile as `train_gpt profile` writes it: " + error.what());
  }
}

void check_profile(const Profile& profile, const std::string& path, const ProfileSizes& wanted) {
  const ProfileSizes& sizes = profile.sizes;
  const auto compare = [&](const char* option, std::int64_t measured, std::int64_t here) {
    if (measured == here) return;
    throw std::invalid_argument("--profile " + path + " was measured with " + option + " " + std::to_string(measured) +
                                ", but this run has " + std::to_string(here) +
                                ": measure again with `train_gpt profile`, or leave --profile out");
  };
  compare("--hidden", sizes.hidden, wanted.hidden);
  compare("--heads", sizes.heads, wanted.heads);
  compare("--vocab", sizes.vocab, wanted.vocab);
  compare("--micro-batch-size", sizes.micro_batch_size, wanted.micro_batch_size);
  compare("--seq-len", sizes.seq_len, wanted.seq_len);
  if (sizes.precision != wanted.precision) {
    throw std::invalid_argument("--profile " + path + " was measured in another --precision than this run has: " +
                                "measure again with `train_gpt profile`, or leave --profile out");
  }
}

std::string profile_table(const Profile& profile) {
  std::string table = "ms per micro-batch (rank 0 of " + std::to_string(profile.ranks.size()) +
                      ", all measured at once)      median        min        max\n";
  for (int form = 0; form < kUnitForms; ++form) {
    const UnitTimes& times = profile.ranks.front()[static_cast<std::size_t>(form)];
    const char* name = to_string(static_cast<UnitForm>(form));
    table += table_line(name, "forward", times.forward);
    table += table_line("", "backward_input", times.input);
    table += table_line("", "backward_weight", times.weight);
  }
  for (const MessageTime& message : profile.messages) {
    table += table_line("message", (std::to_string(message.bytes) + " bytes").c_str(), message.one_way);
  }
  if (!profile.messages.empty()) {
    char text[120];
    const double bandwidth = message_bandwidth(profile);
    const char* format = bandwidth > 0 ? "latency %.4f ms, bandwidth %.2f GB/s\n"
                                       : "latency %.4f ms; messages of these sizes are too short to tell a bandwidth\n";
    std::snprintf(text, sizeof text, format, message_latency(profile), bandwidth);
    table += text;
  }
  for (std::size_t r = 0; r < profile.links.size() && profile.links.size() > 1; ++r) {
    char text[120];
    std::snprintf(text, sizeof text, "link %zu-%zu: latency %.4f ms, bandwidth %.2f GB/s\n", r,
                  (r + 1) % profile.ranks.size(), profile.links[r].latency, profile.links[r].bandwidth);
    table += text;
  }
  return table;
}

}  // namespace train_gpt

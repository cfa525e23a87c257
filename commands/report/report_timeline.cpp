// Writes timelines into a log and reads them back. A bar is [start, end, letter, lane, stage, micro-batch], times in ms
// to a tenth of a microsecond.
#include <algorithm>
#include <cmath>

#include "commands/report/report.h"

namespace train_gpt {

nlohmann::ordered_json timeline_event(std::int64_t step, const std::vector<Timeline>& panels) {
  using Json = nlohmann::ordered_json;
  const auto rounded = [](double ms) { return std::round(ms * 1e4) / 1e4; };
  Json list = Json::array();
  for (const Timeline& panel : panels) {
    Json rows = Json::array();
    for (const std::vector<TimelineBar>& row : panel.rows) {
      Json bars = Json::array();
      for (const TimelineBar& bar : row) {
        bars.push_back({rounded(bar.start), rounded(bar.end), std::string(1, bar.letter), static_cast<int>(bar.lane),
                        bar.stage, bar.micro_batch});
      }
      rows.push_back(std::move(bars));
    }
    list.push_back({{"title", panel.title},
                    {"note", panel.note},
                    {"chunks", panel.chunks},
                    {"chunk_name", panel.chunk_name},
                    {"chunk_of_stage", panel.chunk_of_stage},
                    {"rows", std::move(rows)}});
  }
  return Json{{"event", "timeline"}, {"step", step}, {"panels", std::move(list)}};
}

std::vector<Timeline> timelines_of(const nlohmann::ordered_json& event) {
  std::vector<Timeline> panels;
  std::size_t bars = 0;
  try {
    for (const nlohmann::ordered_json& it : event.at("panels")) {
      Timeline& panel = panels.emplace_back();
      it.at("title").get_to(panel.title);
      it.at("note").get_to(panel.note);
      it.at("chunks").get_to(panel.chunks);
      it.at("chunk_name").get_to(panel.chunk_name);
      it.at("chunk_of_stage").get_to(panel.chunk_of_stage);
      const auto is_chunk = [&](int chunk) { return chunk >= 0 && chunk < panel.chunks; };
      if (!std::all_of(panel.chunk_of_stage.begin(), panel.chunk_of_stage.end(), is_chunk)) return {};
      for (const nlohmann::ordered_json& row : it.at("rows")) {
        std::vector<TimelineBar>& bars_of_row = panel.rows.emplace_back();
        for (const nlohmann::ordered_json& bar : row) {
          const int lane = bar.at(3), stage = bar.at(4);
          if (lane < 0 || lane > 2 || stage < 0 || ++bars > kMostBarsOnPage) return {};
          const auto letter = bar.at(2).get<std::string>();
          if (letter.size() != 1 || std::string("FBIWRU").find(letter) == std::string::npos) return {};
          bars_of_row.push_back({.start = bar.at(0),
                                 .end = bar.at(1),
                                 .letter = letter[0],
                                 .lane = static_cast<TimelineBar::Lane>(lane),
                                 .stage = stage,
                                 .micro_batch = bar.at(5)});
        }
      }
    }
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return panels;
}

}  // namespace train_gpt

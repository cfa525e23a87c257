// report.html: a run on one page that needs neither network nor scripts, made from its log alone.
#pragma once

#include <string>
#include <vector>

#include "commands/report/report_log.h"
#include "pipeline/draw/timeline.h"

namespace train_gpt {

// A log without an end does not tell whether its run is still alive, so the caller does.
enum class RunCondition : std::uint8_t {
  running,  // the page asks the browser to load it again every few seconds
  over,     // its log says how it ended; if it does not, the run was killed
};

// A page of well-formed XHTML in UTF-8, whatever the log holds.
std::string html_report(const LoggedRun& run, RunCondition condition);

// The event "timeline": pictures of one step, for the page.
nlohmann::ordered_json timeline_event(std::int64_t step, const std::vector<Timeline>& panels);
// No panels if the event is of another kind or damaged.
std::vector<Timeline> timelines_of(const nlohmann::ordered_json& event);
// A page with more actions than this in its pictures would be slow to open and hard to read.
inline constexpr std::size_t kMostBarsOnPage = 6000;

// Replaces the file by `text` atomically: readers see the whole old or the whole new file. A link of that name is
// replaced, not followed. Throws std::runtime_error naming the file.
void replace_file(const std::string& path, const std::string& text);

}  // namespace train_gpt

// The SVG timeline. One panel per timeline, all on one time axis; every bar carries its story as a tooltip.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <stdexcept>

#include "pipeline/draw/color.h"
#include "pipeline/draw/markup.h"
#include "pipeline/draw/timeline.h"

namespace train_gpt {
namespace {

// Everything in pixels.
constexpr double kLeft = 70.0, kRight = 24.0, kTop = 14.0;
constexpr double kTitleHeight = 40.0, kPanelGap = 22.0, kAxisHeight = 38.0;
constexpr double kLetterWidth = 6.1, kFontSize = 10.0;
constexpr double kVersionHeight = 9.0, kVersionLetterWidth = 4.6;  // of what names versions of the parameters
constexpr double kLaneHeight = 5.0, kLaneGap = 1.0;                // of messages

struct Layout {
  double width = 0.0;  // of the time axis
  double end = 0.0;    // milliseconds
  double row_height = 24.0;
  double row_gap = 4.0;
  bool has_lanes = false;  // two for messages below every row: activations, gradients

  double lane_top(bool gradients) const { return row_height + kLaneGap + (gradients ? kLaneHeight + kLaneGap : 0.0); }
  double x(double milliseconds) const { return kLeft + (end > 0.0 ? milliseconds / end * width : 0.0); }
  double row_distance() const { return (has_lanes ? lane_top(true) + kLaneHeight : row_height) + row_gap; }
};

template <typename... Arguments>
void print(std::string& out, const char* format, Arguments... arguments) {
  char text[512];
  std::snprintf(text, sizeof text, format, arguments...);
  out += text;
}

Layout choose_layout(const std::vector<Timeline>& timelines) {
  constexpr double kNarrowest = 960.0, kWidest = 6000.0, kPixelsPerBar = 34.0;
  Layout layout;
  std::size_t bars = 0, most_bars_in_row = 0, rows = 0;
  for (const Timeline& timeline : timelines) {
    for (const std::vector<TimelineBar>& row : timeline.rows) {
      bars += row.size();
      most_bars_in_row = std::max(most_bars_in_row, row.size());
      for (const TimelineBar& bar : row) layout.end = std::max(layout.end, bar.end);
    }
    rows = std::max(rows, timeline.rows.size());
    layout.has_lanes = layout.has_lanes || !timeline.messages.empty();
    for (const std::vector<TimelineMessage>& sent : timeline.messages) {
      bars += sent.size();
      for (const TimelineMessage& message : sent) layout.end = std::max(layout.end, message.arrives);
    }
  }
  if (bars > kMostSvgBars) {
    throw std::invalid_argument("--svg: " + std::to_string(bars) + " actions make no readable picture; draw at most " +
                                std::to_string(kMostSvgBars) + ", with fewer stages, micro-batches or schedules");
  }
  layout.width = std::clamp(static_cast<double>(most_bars_in_row) * kPixelsPerBar, kNarrowest, kWidest);
  if (rows > 64) {
    layout.row_height = 10.0;
    layout.row_gap = 1.0;
  }
  return layout;
}

// As much of `5F12` as fits: without the stage, or the micro-batch alone (colour and shade say the rest).
std::string fitting_label(const TimelineBar& bar, bool with_stage, double width) {
  const std::string micro_batch = bar.micro_batch >= 0 ? std::to_string(bar.micro_batch) : "";
  std::string label(1, bar.letter);
  label += micro_batch;
  const auto fits = [&](std::size_t letters) { return static_cast<double>(letters) * kLetterWidth + 2.0 <= width; };
  if (with_stage && fits(label.size() + std::to_string(bar.stage).size())) return std::to_string(bar.stage) + label;
  if (fits(label.size())) return label;
  return !micro_batch.empty() && fits(micro_batch.size()) ? micro_batch : "";
}

// A strip at the foot of a bar, in a colour of its own.
void draw_version(std::string& out, int version, double left, double top, double width) {
  const BarColor color = bar_color('F', version);
  print(out, "<rect class='version' x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='%s'/>", left, top, width,
        kVersionHeight, color.fill.c_str());
  const std::string label = "v" + std::to_string(version);
  if (static_cast<double>(label.size()) * kVersionLetterWidth + 2.0 > width) return;
  print(out, "<text class='version' x='%.2f' y='%.2f'>%s</text>", left + width / 2.0, top + kVersionHeight - 2.0,
        label.c_str());
}

void draw_bar(std::string& out, const Timeline& timeline, const TimelineBar& bar, int rank, const Layout& layout,
              double row_top) {
  const bool shares_row = bar.lane != TimelineBar::Lane::whole;
  const double height = shares_row ? layout.row_height / 2.0 : layout.row_height;
  const double top = row_top + (bar.lane == TimelineBar::Lane::lower ? height : 0.0);
  const double left = layout.x(bar.start), width = layout.x(bar.end) - left;
  const double drawn = std::max(width - std::min(0.6, 0.1 * width), 0.05);  // a hairline between neighbours
  const BarColor color = bar_color(bar.letter, bar.micro_batch);
  const std::string name = bar.micro_batch < 0
                               ? std::string(1, bar.letter)
                               : std::to_string(bar.stage) + bar.letter + std::to_string(bar.micro_batch);
  print(out, "<g><title>%s on rank %d", name.c_str(), rank);
  if (bar.version >= 0) print(out, ", with version %d", bar.version);
  print(out, ": %.6g to %.6g ms</title>", bar.start, bar.end);
  print(out, "<rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='%s'/>", left, top, drawn, height,
        color.fill.c_str());
  if (bar.letter == 'W') {
    print(out, "<rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='url(#hatch)'/>", left, top, drawn, height);
  }
  const int chunk =
      bar.stage < static_cast<int>(timeline.chunk_of_stage.size()) ? timeline.chunk_of_stage[bar.stage] : 0;
  constexpr double kMarkHeight = 3.0;
  if (chunk > 0 && height > 5.0 * kMarkHeight) {
    print(out, "<rect x='%.2f' y='%.2f' width='%.2f' height='%.1f' fill='%s'/>", left, top + height - kMarkHeight,
          drawn, kMarkHeight, chunk_color(chunk, timeline.chunks).c_str());
  }
  const double strip = bar.version >= 0 && height > 2.0 * kVersionHeight ? kVersionHeight : 0.0;
  if (strip > 0.0) draw_version(out, bar.version, left, top + height - strip, drawn);
  const std::string label = fitting_label(bar, timeline.chunks > 1 && bar.micro_batch >= 0, width);
  if (!label.empty() && height >= kFontSize) {
    print(out, "<text x='%.2f' y='%.2f' fill='%s'>%s</text>", left + width / 2.0,
          top + (height - strip) / 2.0 + 0.35 * kFontSize, color.text.c_str(), label.c_str());
  }
  out += "</g>\n";
}

void draw_message(std::string& out, const TimelineMessage& message, int rank, const Layout& layout, double row_top) {
  const double left = layout.x(message.sent), width = layout.x(message.arrives) - left;
  print(out, "<g><title>%s of micro-batch %d, rank %d to rank %d, for %d%c: %.6g to %.6g ms</title>",
        message.is_gradient ? "gradient" : "activation", message.micro_batch, rank, message.destination, message.stage,
        message.is_gradient ? 'B' : 'F', message.sent, message.arrives);
  print(out, "<rect class='message' fill-opacity='0.6' x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='%s'/></g>\n",
        left, row_top + layout.lane_top(message.is_gradient), std::max(width, 0.5), kLaneHeight,
        bar_color(message.is_gradient ? 'B' : 'F', message.micro_batch).fill.c_str());
}

// Returns the y below it.
double draw_panel(std::string& out, const Timeline& timeline, const Layout& layout, double top) {
  print(out, "<text class='title' x='%.1f' y='%.1f'>", kLeft, top + 14.0);
  out += escaped_markup(timeline.title) + "</text>\n";
  print(out, "<text class='note' x='%.1f' y='%.1f'>", kLeft, top + 30.0);
  out += escaped_markup(timeline.note) + "</text>\n";
  double end = 0.0;  // of the last action: what follows the flush stands after it
  for (const std::vector<TimelineBar>& row : timeline.rows) {
    for (const TimelineBar& bar : row) end = bar.micro_batch < 0 ? end : std::max(end, bar.end);
  }
  double y = top + kTitleHeight;
  for (std::size_t rank = 0; rank < timeline.rows.size(); ++rank, y += layout.row_distance()) {
    if (layout.row_height >= kFontSize) {
      print(out, "<text class='name' x='%.1f' y='%.2f'>rank %zu</text>\n", kLeft - 8.0,
            y + layout.row_height / 2.0 + 0.35 * kFontSize, rank);
    }
    print(out, "<rect class='idle' x='%.2f' y='%.2f' width='%.2f' height='%.2f'/>\n", layout.x(0.0), y,
          layout.x(end) - layout.x(0.0), layout.row_height);
    for (const TimelineBar& bar : timeline.rows[rank]) {
      draw_bar(out, timeline, bar, static_cast<int>(rank), layout, y);
    }
    if (timeline.messages.empty()) continue;
    for (const TimelineMessage& message : timeline.messages[rank]) {
      draw_message(out, message, static_cast<int>(rank), layout, y);
    }
  }
  print(out, "<line class='end' x1='%.2f' y1='%.2f' x2='%.2f' y2='%.2f'/>\n", layout.x(end), top + kTitleHeight - 4.0,
        layout.x(end), y);
  return y;
}

// 1, 2 or 5 times a power of ten.
double tick_distance(double range, double most_ticks) {
  if (range <= 0.0) return 1.0;
  const double power = std::pow(10.0, std::floor(std::log10(range / most_ticks)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (range / (factor * power) <= most_ticks) return factor * power;
  }
  return 10.0 * power;
}

void draw_axis(std::string& out, const Layout& layout, double top) {
  constexpr double kPixelsPerTick = 80.0;
  const double distance = tick_distance(layout.end, layout.width / kPixelsPerTick);
  print(out, "<line class='axis' x1='%.2f' y1='%.2f' x2='%.2f' y2='%.2f'/>\n", kLeft, top, kLeft + layout.width, top);
  for (int i = 0; i * distance <= layout.end * (1.0 + 1e-9); ++i) {
    const double x = layout.x(i * distance);
    print(out, "<line class='axis' x1='%.2f' y1='%.2f' x2='%.2f' y2='%.2f'/>", x, top, x, top + 5.0);
    print(out, "<text class='tick' x='%.2f' y='%.2f'>%.6g%s</text>\n", x, top + 17.0, i * distance,
          i == 0 ? " ms" : "");
  }
}

struct Swatch {
  std::string text;
  std::string rects;  // 14 pixels high, at the origin
  int hues = 0;       // if it shows colours of micro-batches: how many
};

std::string box(const std::string& fill) { return "<rect width='26' height='14' fill='" + fill + "'/>"; }

std::vector<Swatch> legend_entries(const std::vector<Timeline>& timelines) {
  std::set<char> letters;
  int chunks = 1, micro_batches = 0;
  std::string chunk_name;
  for (const Timeline& timeline : timelines) {
    if (timeline.chunks > chunks) chunk_name = timeline.chunk_name;
    chunks = std::max(chunks, timeline.chunks);
    for (const std::vector<TimelineBar>& row : timeline.rows) {
      for (const TimelineBar& bar : row) {
        letters.insert(bar.letter);
        micro_batches = std::max(micro_batches, bar.micro_batch + 1);
      }
    }
  }
  constexpr std::array<std::pair<char, const char*>, 7> kMeanings = {{{'F', "F forward"},
                                                                      {'B', "B backward"},
                                                                      {'I', "I backward, input gradient"},
                                                                      {'W', "W backward, weight gradient"},
                                                                      {'R', "R reduction"},
                                                                      {'U', "U update"},
                                                                      {'G', "G gathering of parameters"}}};
  std::vector<Swatch> entries;
  for (const auto& [letter, meaning] : kMeanings) {
    if (!letters.contains(letter)) continue;
    std::string rects = box(bar_color(letter, std::string("RUG").find(letter) != std::string::npos ? -1 : 0).fill);
    if (letter == 'W') rects += box("url(#hatch)");
    entries.push_back({meaning, rects, 0});
  }
  entries.push_back({"idle", "<rect class='idle' width='26' height='14'/>", 0});
  for (int chunk = 1; chunk < std::min(chunks, 4); ++chunk) {
    entries.push_back({chunk_name + " " + std::to_string(chunk), box(bar_color('F', 0).fill) +
                                                                     "<rect y='11' width='26' height='3' fill='" +
                                                                     chunk_color(chunk, chunks) + "'/>"});
  }
  const bool has_versions = std::any_of(timelines.begin(), timelines.end(), [](const Timeline& timeline) {
    return !timeline.rows.empty() && !timeline.rows.front().empty() && timeline.rows.front().front().version >= 0;
  });
  if (has_versions) {
    entries.push_back({"v1: version of the parameters",
                       box(bar_color('F', 0).fill) + "<rect class='version' y='5' width='26' height='9' fill='" +
                           bar_color('F', 1).fill + "'/><text class='version' x='13' y='12'>v1</text>"});
  }
  const bool has_lanes = std::any_of(timelines.begin(), timelines.end(),
                                     [](const Timeline& timeline) { return !timeline.messages.empty(); });
  if (has_lanes) {
    entries.push_back({"messages that a rank sends: activations",
                       "<rect class='message' fill-opacity='0.6' y='1' width='26' height='5' fill='" +
                           bar_color('F', 0).fill + "'/>"});
    entries.push_back({"and gradients", "<rect class='message' fill-opacity='0.6' y='8' width='26' height='5' fill='" +
                                            bar_color('B', 0).fill + "'/>"});
  }
  std::string hues;
  for (int i = 0; i < std::min(micro_batches, 8); ++i) {
    hues += "<rect x='" + std::to_string(15 * i) + "' width='14' height='14' fill='" + bar_color('F', i).fill + "'/>";
  }
  entries.push_back({"colour: micro-batch 0, 1, 2, ...", hues, std::min(micro_batches, 8)});
  return entries;
}

// Returns the y below it.
double draw_legend(std::string& out, const std::vector<Timeline>& timelines, const Layout& layout, double top) {
  constexpr double kBoxWidth = 26.0, kHueWidth = 15.0, kMeanLetterWidth = 5.6, kLineHeight = 22.0;
  double x = kLeft, y = top;
  for (const Swatch& entry : legend_entries(timelines)) {
    const double box_width = entry.hues > 0 ? kHueWidth * entry.hues : kBoxWidth;
    const double width = box_width + 22.0 + static_cast<double>(entry.text.size()) * kMeanLetterWidth;
    if (x > kLeft && x + width > kLeft + layout.width) {
      x = kLeft;
      y += kLineHeight;
    }
    print(out, "<g transform='translate(%.1f %.1f)'>", x, y);
    out += entry.rects;
    print(out, "<text class='legend' x='%.1f' y='11'>", box_width + 6.0);
    out += entry.text + "</text></g>\n";
    x += width;
  }
  return y + kLineHeight;
}

// Every rule names the class, since in a page a picture's style counts for the whole of it.
constexpr const char* kStyle =
    "<style>.timeline text{font:10px system-ui,sans-serif;text-anchor:middle}.timeline .title{font-size:14px;"
    "font-weight:600;text-anchor:start}.timeline .note{font-size:11px;fill:#555;text-anchor:start}.timeline "
    ".name{font-size:11px;text-anchor:end}.timeline text.version{font-size:7.5px;fill:#1a1a1a}.timeline "
    "rect.version{stroke:#fff;stroke-width:.8}.timeline .legend{font-size:11px;text-anchor:start}.timeline "
    ".tick{fill:#444}.timeline .paper{fill:#fff}.timeline "
    ".idle{fill:#e3e3e8}.timeline .axis{stroke:#777;"
    "stroke-width:1}.timeline .end{stroke:#222;stroke-width:1;stroke-dasharray:3 3}</style>\n"
    "<defs><pattern id='hatch' width='5' height='5' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>"
    "<rect width='1.6' height='5' fill='#fff' fill-opacity='0.25'/></pattern></defs>\n";

}  // namespace

std::string draw_svg(const std::vector<Timeline>& timelines) {
  const Layout layout = choose_layout(timelines);
  std::string body;
  double y = kTop;
  for (const Timeline& timeline : timelines) y = draw_panel(body, timeline, layout, y) + kPanelGap;
  draw_axis(body, layout, y - kPanelGap + 8.0);
  const double height = draw_legend(body, timelines, layout, y - kPanelGap + kAxisHeight + 4.0) + kTop;

  const double width = kLeft + layout.width + kRight;
  std::string out;
  print(
      out,
      "<svg xmlns='http://www.w3.org/2000/svg' class='timeline' viewBox='0 0 %.0f %.0f' width='%.0f' height='%.0f'>\n",
      width, height, width, height);
  out += kStyle;
  out += "<rect class='paper' width='100%' height='100%'/>\n";
  return out + body + "</svg>\n";
}

}  // namespace train_gpt

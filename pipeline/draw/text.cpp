// The text timeline. Positions are rounded absolute times, so rows stay aligned whatever the costs are.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "pipeline/draw/timeline.h"

namespace train_gpt {
namespace {

double end_of(const Timeline& timeline) {
  double end = 0.0;
  for (const std::vector<TimelineBar>& row : timeline.rows) {
    for (const TimelineBar& bar : row) end = std::max(end, bar.end);
  }
  return end;
}

std::string label(const Timeline& timeline, const TimelineBar& bar) {
  std::string text = timeline.chunks > 1 && bar.micro_batch >= 0 ? std::to_string(bar.stage) : "";
  text += bar.letter;
  if (bar.micro_batch >= 0) text += std::to_string(bar.micro_batch);
  return text;
}

// The two parts of a pair share one place: `F3&B1`.
bool continues_pair(const TimelineBar& bar) { return bar.lane == TimelineBar::Lane::lower; }

std::string label_of_place(const Timeline& timeline, const std::vector<TimelineBar>& row, std::size_t i) {
  std::string text = label(timeline, row[i]);
  if (i + 1 < row.size() && continues_pair(row[i + 1])) text.append("&").append(label(timeline, row[i + 1]));
  return text;
}

double common_divisor(double a, double b, double tolerance) {
  while (b > tolerance) {
    double rest = std::fmod(a, b);
    if (b - rest < tolerance) rest = 0.0;
    a = std::exchange(b, rest);
  }
  return a;
}

// The largest step of time of which every start and end is a multiple, if it is not much shorter than the shortest bar.
std::optional<double> common_step(const Timeline& timeline, double shortest) {
  constexpr double kMostStepsPerBar = 6.0;
  const double tolerance = 1e-6 * shortest;
  double step = shortest;
  for (const std::vector<TimelineBar>& row : timeline.rows) {
    for (const TimelineBar& bar : row) {
      step = common_divisor(bar.start, step, tolerance);
      step = common_divisor(bar.end - bar.start, step, tolerance);
      if (step < shortest / kMostStepsPerBar) return std::nullopt;
    }
  }
  return step;
}

struct Scale {
  double per_millisecond = 1.0;  // characters
  int dot_distance = 2;          // characters from one idle dot to the next
  bool cuts_labels = false;
};

Scale choose_scale(const Timeline& timeline, int columns) {
  double shortest = 0.0, longest = 0.0;
  std::size_t widest = 2;
  for (const std::vector<TimelineBar>& row : timeline.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double duration = row[i].end - row[i].start;
      if (duration <= 0.0) continue;
      shortest = shortest == 0.0 ? duration : std::min(shortest, duration);
      longest = std::max(longest, duration);
      if (!continues_pair(row[i])) widest = std::max(widest, label_of_place(timeline, row, i).size());
    }
  }
  const int place = static_cast<int>(widest) + 1;
  const double end = end_of(timeline);
  if (shortest == 0.0) return {1.0, place, false};

  Scale scale{0.0, place, false};
  // A rare very short action must not blow up the picture: its label may be cut.
  constexpr double kSliver = 0.2;
  const double fitting = std::max(shortest, kSliver * longest);
  scale.cuts_labels = fitting > shortest;
  scale.per_millisecond = place / fitting;
  if (const std::optional<double> step = scale.cuts_labels ? std::nullopt : common_step(timeline, shortest)) {
    scale.per_millisecond = std::ceil(place * *step / shortest - 1e-6) / *step;
  }
  if (end * scale.per_millisecond > static_cast<double>(columns) * kMostFolds) {
    scale.per_millisecond = columns / end;
    scale.dot_distance = 2;
    scale.cuts_labels = true;
  }
  return scale;
}

// As much of a label as fits: `5F12`, else `F12`, else `F`.
std::string cut_label(std::string label, char letter, std::size_t length) {
  if (label.size() > length) label.erase(0, label.find(letter));
  if (label.size() > length) label.erase(1);
  return label;
}

std::string draw_row(const Timeline& timeline, const std::vector<TimelineBar>& row, const Scale& scale, double until) {
  const auto column = [&](double time) { return static_cast<std::size_t>(std::llround(time * scale.per_millisecond)); };
  std::string line;
  const auto idle_until = [&](std::size_t end) {
    for (std::size_t i = 0; line.size() < end; ++i) line += i % scale.dot_distance == 0 ? '.' : ' ';
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (continues_pair(row[i])) continue;
    idle_until(column(row[i].start));
    const std::size_t end = column(row[i].end);
    if (end <= line.size()) continue;
    const std::size_t length = end - line.size();
    std::string bar = cut_label(label_of_place(timeline, row, i), row[i].letter, length);
    if (bar.size() + 1 < length) bar.append(length - 1 - bar.size(), '-');
    bar.resize(length, ' ');
    line += bar;
  }
  idle_until(column(until));
  return line;
}

// The column at which a line that starts at `begin` breaks: at most `columns` further, between two labels if possible.
std::size_t fold_after(const std::vector<std::string>& lines, std::size_t begin, std::size_t columns) {
  const auto splits_label = [](const std::string& line, std::size_t at) {
    const auto in_label = [](char c) { return c != ' ' && c != '.' && c != '-'; };
    return at < line.size() && in_label(line[at - 1]) && in_label(line[at]);
  };
  const std::size_t latest = begin + columns;
  for (std::size_t at = latest; at > latest - columns / 4; --at) {
    if (std::none_of(lines.begin(), lines.end(), [&](const auto& line) { return splits_label(line, at); })) return at;
  }
  return latest;
}

// The rows to show when there are too many: the first and the last ones.
struct ShownRows {
  int total, above, below;

  ShownRows(int rows, int most)
      : total(rows), above(rows <= most ? rows : (most + 1) / 2), below(rows <= most ? 0 : most / 2) {}
  bool shows(int row) const { return row < above || row >= total - below; }
};

std::string draw_block(const std::vector<std::string>& lines, const ShownRows& shown, std::size_t begin,
                       std::size_t end) {
  const std::size_t name_width = std::to_string(shown.total - 1).size();
  std::string text;
  for (int rank = 0; rank < shown.total; ++rank) {
    if (!shown.shows(rank)) {
      if (rank == shown.above) {
        text += "  ... " + std::to_string(shown.total - shown.above - shown.below) + " ranks left out ...\n";
      }
      continue;
    }
    const std::string name = std::to_string(rank);
    std::string line = "rank ";
    line.append(name_width - name.size(), ' ').append(name).append(" | ");
    if (begin < lines[rank].size()) line += lines[rank].substr(begin, end - begin);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string draw_text(const Timeline& timeline, const TextOptions& options) {
  const ShownRows shown(static_cast<int>(timeline.rows.size()), options.most_rows);
  const int margin = static_cast<int>(std::to_string(shown.total - 1).size() + std::string("rank  | ").size());
  const int columns = std::max(options.columns - margin, 12);
  const Scale scale = choose_scale(timeline, columns);
  const double end = end_of(timeline);
  std::vector<std::string> lines(timeline.rows.size());
  std::size_t width = 0;
  for (int rank = 0; rank < shown.total; ++rank) {
    if (shown.shows(rank)) lines[rank] = draw_row(timeline, timeline.rows[rank], scale, end);
    width = std::max(width, lines[rank].size());
  }

  std::string text = timeline.title + "\n";
  if (!timeline.note.empty()) text += timeline.note + "\n";
  std::size_t begin = 0;
  do {
    if (begin > 0) text += "\n";
    const bool rest_fits = width - begin <= static_cast<std::size_t>(columns);
    const std::size_t fold = rest_fits ? width : fold_after(lines, begin, columns);
    text += draw_block(lines, shown, begin, fold);
    begin = fold;
  } while (begin < width);
  char legend[240];
  std::snprintf(legend, sizeof legend, "%*s one character is %.3g ms of %.6g; . is idle%s%s\n", margin - 1, "",
                1.0 / scale.per_millisecond, end,
                width > static_cast<std::size_t>(columns) ? "; folded, time runs on below" : "",
                scale.cuts_labels ? "; scaled down, so labels are cut (--svg shows all)" : "");
  return text + legend;
}

}  // namespace train_gpt

#include "pipeline/draw/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "pipeline/draw/markup.h"

namespace train_gpt {
namespace {

// Everything in pixels.
constexpr double kLeft = 76, kRight = 20;
constexpr double kPlotHeight = 220, kTop = 30, kAxisHeight = 40;

template <typename... Arguments>
void print(std::string& out, const char* format, Arguments... arguments) {
  char text[400];
  std::snprintf(text, sizeof text, format, arguments...);
  out += text;
}

// Smallest and largest value with room for ticks at 1, 2 or 5 times a power of ten.
struct Axis {
  double low = 0, high = 1, tick = 1;

  Axis(double smallest, double largest, int most_ticks, double least_tick = 0) : low(smallest), high(largest) {
    if (high <= low) {
      const double room = least_tick > 0 ? least_tick : low == 0 ? 1 : std::abs(low) * 0.1;
      low = low < 0 ? low - room : std::max(low - room, 0.0);  // a step is not negative
      high += room;
    }
    const double power = std::pow(10.0, std::floor(std::log10((high - low) / most_ticks)));
    tick = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0}) {
      if ((high - low) / (factor * power) <= most_ticks) tick = factor * power;
    }
    tick = std::max(tick, least_tick);
  }
  double fraction(double value) const { return (value - low) / (high - low); }
  int first_tick() const { return static_cast<int>(std::ceil(low / tick - 1e-9)); }
  int last_tick() const { return static_cast<int>(std::floor(high / tick + 1e-9)); }
};

std::string open_svg(double width, double height) {
  std::string out;
  print(out,
        "<svg class='chart' xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' width='%.0f' height='%.0f'>",
        width, height, width, height);
  out +=
      "<style>svg.chart text{font:11px system-ui,sans-serif;text-anchor:start;fill:#333}svg.chart "
      ".right{text-anchor:end}svg.chart .middle{text-anchor:middle}svg.chart .paper{fill:#fff}svg.chart "
      ".grid{stroke:#e4e4ea}svg.chart .axis{stroke:#777}svg.chart .mark{stroke:#777;stroke-dasharray:2 3}</style>"
      "<rect class='paper' width='100%' height='100%'/>\n";
  return out;
}

void draw_text_at(std::string& out, const char* place, double x, double y, const std::string& text) {
  print(out, "<text class='%s' x='%.1f' y='%.1f'>", place, x, y);
  out += escaped_markup(text) + "</text>";
}

void draw_line(std::string& out, double x1, double y1, double x2, double y2, const char* kind) {
  print(out, "<line class='%s' x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f'/>", kind, x1, y1, x2, y2);
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", std::abs(value) < 1e-12 ? 0.0 : value);
  return text;
}

struct LegendEntry {
  std::string name;
  std::string color;
  double x = 0;  // of its box
  double y = 0;
};

// Places lines of entries above the plot; returns the y at which the plot begins.
double place_legend(std::vector<LegendEntry>& entries, double svg_width) {
  constexpr double kBox = 40, kLetter = 6.6, kLine = 18;
  double x = kLeft, y = 8;
  for (LegendEntry& entry : entries) {
    const double width = kBox + kLetter * static_cast<double>(entry.name.size());
    if (x > kLeft && x + width > svg_width) {
      x = kLeft;
      y += kLine;
    }
    entry.x = x;
    entry.y = y;
    x += width;
  }
  return y + kTop - 8;
}

void draw_legend(std::string& out, const std::vector<LegendEntry>& entries) {
  for (const LegendEntry& entry : entries) {
    print(out, "<rect x='%.1f' y='%.1f' width='14' height='10' fill='%s'/>", entry.x, entry.y, entry.color.c_str());
    draw_text_at(out, "left", entry.x + 19, entry.y + 9, entry.name);
  }
  out += "\n";
}

using Points = std::vector<std::pair<double, double>>;

Points finite(const Points& points) {
  Points result;
  for (const auto& point : points) {
    if (std::isfinite(point.first) && std::isfinite(point.second)) result.push_back(point);
  }
  return result;
}

// At most the lowest and the highest point of each pixel column, in order of x.
Points thinned(const Points& points, const Axis& x, double plot_width) {
  if (points.size() <= 2 * static_cast<std::size_t>(plot_width)) return points;
  Points result;
  for (std::size_t i = 0; i < points.size();) {
    const auto column = [&](std::size_t k) { return std::floor(x.fraction(points[k].first) * plot_width); };
    std::size_t low = i, high = i, end = i;
    for (; end < points.size() && column(end) == column(i); ++end) {
      if (points[end].second < points[low].second) low = end;
      if (points[end].second > points[high].second) high = end;
    }
    result.push_back(points[std::min(low, high)]);
    if (low != high) result.push_back(points[std::max(low, high)]);
    i = end;
  }
  return result;
}

double plot_width(const CurveAxes& axes) { return axes.width - kLeft - kRight; }

void draw_axes(std::string& out, const Axis& x, const Axis& y, const CurveAxes& axes) {
  const double width = plot_width(axes);
  for (int i = y.first_tick(); i <= y.last_tick(); ++i) {
    const double at = kTop + kPlotHeight * (1 - y.fraction(i * y.tick));
    draw_line(out, kLeft, at, kLeft + width, at, "grid");
    draw_text_at(out, "right", kLeft - 6, at + 4, number(i * y.tick) + axes.unit);
  }
  for (int i = x.first_tick(); i <= x.last_tick(); ++i) {
    const double at = kLeft + width * x.fraction(i * x.tick);
    draw_line(out, at, kTop + kPlotHeight, at, kTop + kPlotHeight + 4, "axis");
    draw_text_at(out, "middle", at, kTop + kPlotHeight + 17, number(i * x.tick));
  }
  draw_line(out, kLeft, kTop + kPlotHeight, kLeft + width, kTop + kPlotHeight, "axis");
  draw_text_at(out, "middle", kLeft + width / 2, kTop + kPlotHeight + 33, axes.x_name);
  draw_text_at(out, "right", kLeft - 6, kTop - 14, axes.y_name);
  for (const double mark : axes.marks) {
    const double at = kLeft + width * x.fraction(mark);
    if (mark > x.low && mark < x.high) draw_line(out, at, kTop, at, kTop + kPlotHeight, "mark");
  }
  out += "\n";
}

void draw_curve(std::string& out, const Curve& curve, const Axis& x, const Axis& y, double width) {
  constexpr std::size_t kFew = 30;  // a line alone would be short, or missing
  const Points points = thinned(finite(curve.points), x, width);
  const bool marked = curve.dots || points.size() <= kFew;
  print(out, "<polyline fill='none' stroke='%s' stroke-width='1.5' points='", curve.color.c_str());
  std::string dots;
  for (const auto& [at, value] : points) {
    const double px = kLeft + width * x.fraction(at);
    const double py = kTop + kPlotHeight * (1 - y.fraction(value));
    print(out, "%.1f,%.1f ", px, py);
    if (marked)
      print(dots, "<circle cx='%.1f' cy='%.1f' r='%.1f' fill='%s'/>", px, py,
            curve.dots || points.size() == 1 ? 3.5 : 2.0, curve.color.c_str());
  }
  out += "'/>" + dots + "\n";
}

}  // namespace

std::string draw_curves(const std::vector<Curve>& curves, const CurveAxes& axes) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double x_low = kInfinity, x_high = -kInfinity, y_low = axes.from_zero ? 0 : kInfinity, y_high = -kInfinity;
  for (const Curve& curve : curves) {
    for (const auto& [x, y] : finite(curve.points)) {
      x_low = std::min(x_low, x);
      x_high = std::max(x_high, x);
      y_low = std::min(y_low, y);
      y_high = std::max(y_high, y);
    }
  }
  std::string out = open_svg(axes.width, kTop + kPlotHeight + kAxisHeight);
  if (x_low > x_high) {
    draw_text_at(out, "middle", axes.width / 2, kTop + kPlotHeight / 2, "no " + axes.y_name + " to draw");
    return out + "</svg>\n";
  }
  const Axis x(x_low, x_high, axes.width < 800 ? 6 : 10, /*least_tick=*/1);
  const Axis y(y_low, y_high, 6);
  draw_axes(out, x, y, axes);
  std::vector<LegendEntry> legend;
  for (const Curve& curve : curves) {
    draw_curve(out, curve, x, y, plot_width(axes));
    legend.push_back({curve.name, curve.color});
  }
  place_legend(legend, axes.width);
  draw_legend(out, legend);
  return out + "</svg>\n";
}

namespace {

constexpr double kBarsWidth = 960, kPlotWidth = kBarsWidth - kLeft - kRight;

void draw_stacked_row(std::string& out, const StackedBars& bars, std::size_t row, const Axis& x, double top) {
  constexpr double kBar = 18;
  draw_text_at(out, "right", kLeft - 8, top + 14, bars.rows[row]);
  double left = 0, right = 0;
  for (std::size_t p = 0; p < bars.parts.size(); ++p) {
    const double value = bars.values[row][p];
    double& edge = value < 0 ? left : right;
    const double begin = kLeft + kPlotWidth * x.fraction(std::min(edge, edge + value));
    print(out, "<rect x='%.2f' y='%.1f' width='%.2f' height='%.1f' fill='%s'><title>", begin, top + 1,
          kPlotWidth * std::abs(value) / (x.high - x.low), kBar, bars.parts[p].color.c_str());
    out += escaped_markup(bars.rows[row] + ": " + bars.parts[p].name + " " + number(value) + " " + bars.unit) +
           "</title></rect>";
    edge += value;
  }
  out += "\n";
}

}  // namespace

std::string draw_stacked_bars(const StackedBars& bars) {
  double low = 0, high = 0;
  for (const std::vector<double>& row : bars.values) {
    double left = 0, right = 0;
    for (const double value : row) (value < 0 ? left : right) += value;
    low = std::min(low, left);
    high = std::max(high, right);
  }
  const Axis x(low, high, 10);
  constexpr double kRow = 24;
  std::vector<LegendEntry> legend;
  for (const StackedBars::Part& part : bars.parts) legend.push_back({part.name, part.color});
  const double top = place_legend(legend, kBarsWidth);
  const double bottom = top + kRow * static_cast<double>(bars.rows.size());
  std::string out = open_svg(kBarsWidth, bottom + kAxisHeight - 12);
  for (int i = x.first_tick(); i <= x.last_tick(); ++i) {
    const double at = kLeft + kPlotWidth * x.fraction(i * x.tick);
    draw_line(out, at, top, at, bottom, "grid");
    draw_text_at(out, "middle", at, bottom + 15, number(i * x.tick) + (i == x.last_tick() ? " " + bars.unit : ""));
  }
  for (std::size_t r = 0; r < bars.rows.size(); ++r) {
    draw_stacked_row(out, bars, r, x, top + kRow * static_cast<double>(r));
  }
  const double zero = kLeft + kPlotWidth * x.fraction(0);
  draw_line(out, zero, top - 2, zero, bottom, "axis");
  draw_legend(out, legend);
  return out + "</svg>\n";
}

}  // namespace train_gpt

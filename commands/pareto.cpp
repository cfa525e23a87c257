#include "commands/pareto.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "pipeline/draw/markup.h"
#include "pipeline/draw/table.h"

namespace train_gpt {
namespace {

constexpr double kRounding = 1e-9;

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

}  // namespace

void mark_best(std::vector<MemoryAndTime>& points) {
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return std::tie(a.peak, a.makespan) < std::tie(b.peak, b.makespan);
  });
  double fastest = 1e300;
  for (MemoryAndTime& point : points) {
    point.best = point.makespan < fastest * (1 - kRounding);
    if (point.best) fastest = point.makespan;
  }
}

std::string pareto_table(const std::vector<MemoryAndTime>& points) {
  std::vector<std::vector<std::string>> rows = {{"schedule", "peak live", "makespan ms"}};
  for (const MemoryAndTime& point : points)
    rows.push_back(
        {(point.best ? "* " : "  ") + point.name, with_digits(point.peak, 5), with_digits(point.makespan, 7)});
  return draw_table(rows) + "* nothing else that takes as little memory is as fast\n";
}

std::string pareto_svg(const std::vector<MemoryAndTime>& points, const std::string& title) {
  constexpr double kLeft = 60, kTop = 40, kWidth = 640, kHeight = 400;
  double slowest = 0, fastest = 1e300, most = 0;
  for (const MemoryAndTime& point : points) {
    slowest = std::max(slowest, point.makespan);
    fastest = std::min(fastest, point.makespan);
    most = std::max(most, point.peak);
  }
  const double range = std::max(slowest - fastest, 1e-3 * slowest);
  const auto x = [&](double makespan) { return kLeft + 20 + (makespan - fastest) / range * (kWidth - 180); };
  const auto y = [&](double peak) { return kTop + kHeight - peak / std::max(most, 1e-9) * (kHeight - 20); };
  std::string svg = R"(<svg xmlns="http://www.w3.org/2000/svg" width="760" height="500" font-family="sans-serif" )"
                    R"(font-size="11"><rect width="760" height="500" fill="#fff"/>)";
  const auto text = [&](double at_x, double at_y, const std::string& words, const char* more = "") {
    svg += "<text x=\"" + number(at_x) + "\" y=\"" + number(at_y) + "\" " + more + ">" + escaped_markup(words) +
           "</text>\n";
  };
  text(kLeft, 24, title, "font-size=\"14\"");
  text(kLeft, kTop + kHeight + 40, "makespan, ms: " + with_digits(fastest, 6) + " to " + with_digits(slowest, 6));
  text(8, kTop - 4, "peak of live activations, in micro-batches: 0 to " + with_digits(most, 5));
  svg += "<path d=\"M" + number(kLeft) + " " + number(kTop) + "v" + number(kHeight) + "h" + number(kWidth) +
         "\" fill=\"none\" stroke=\"#888\"/>\n";
  std::string line;
  for (const MemoryAndTime& point : points) {
    if (!point.best) continue;
    line += (line.empty() ? "M" : "L") + number(x(point.makespan)) + " " + number(y(point.peak));
  }
  svg += "<path d=\"" + line + "\" fill=\"none\" stroke=\"#06c\"/>\n";
  for (const MemoryAndTime& point : points) {
    svg += "<circle cx=\"" + number(x(point.makespan)) + "\" cy=\"" + number(y(point.peak)) + "\" r=\"4\" fill=\"" +
           (point.best ? "#06c" : "#999") + "\"/>\n";
    text(x(point.makespan) + 7, y(point.peak) + 4, point.name);
  }
  return svg + "</svg>\n";
}

}  // namespace train_gpt

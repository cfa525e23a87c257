// Charts as SVG elements for a page: curves, and stacked bars.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace train_gpt {

struct Curve {
  std::string name;
  std::string color;                              // as in SVG
  std::vector<std::pair<double, double>> points;  // x, y; in order of x
  bool dots = false;                              // marks every point, as always where there are few
};

// Curves over one x axis of whole numbers, with a legend. In a pixel column with many points only the lowest and the
// highest are drawn. Points that are not finite are left out; if none is left, the chart says so.
//
// A page colours the parts of a chart by their classes: paper, grid, axis, and text.
struct CurveAxes {
  std::string x_name;
  std::string y_name;
  std::string unit = {};        // follows the numbers of the y axis
  bool from_zero = false;       // the y axis shows 0
  double width = 960;           // pixels
  std::vector<double> marks{};  // x of vertical lines
};
std::string draw_curves(const std::vector<Curve>& curves, const CurveAxes& axes);

struct StackedBars {
  struct Part {
    std::string name;
    std::string color;
  };
  std::vector<Part> parts;
  std::vector<std::string> rows;
  std::vector<std::vector<double>> values;  // [row][part]
  std::string unit;                         // "ms"
};

// One bar per row; negative parts lie left of zero. The tooltip of a part shows its value.
std::string draw_stacked_bars(const StackedBars& bars);

}  // namespace train_gpt

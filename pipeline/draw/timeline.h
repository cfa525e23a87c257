// Pictures of who does what when: of a simulated step, of a measured one, of several under each other on one time axis.
#pragma once

#include <string>
#include <vector>

#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct Schedule;

struct TimelineBar {
  // A pair that runs as one shares its row: one part above the other.
  enum class Lane : std::uint8_t { whole, upper, lower };

  double start = 0.0;  // milliseconds
  double end = 0.0;
  char letter = 'F';  // F, B, I, W; other work: R (reduction), U (update)
  Lane lane = Lane::whole;
  int stage = 0;         // virtual stage
  int micro_batch = -1;  // -1: belongs to none
  int version = -1;      // of the parameters that it works with: how many updates made them; -1: not drawn
};

// A message on its way from a rank to another one.
struct TimelineMessage {
  double sent = 0.0;  // milliseconds: the end of the action that sends it
  double arrives = 0.0;
  int destination = 0;  // rank
  int stage = 0;        // virtual stage that takes it
  int micro_batch = 0;
  bool is_gradient = false;
};

struct Timeline {
  std::string title;
  std::string note;                            // one more line: figures
  int chunks = 1;                              // virtual stages of a row; if more than one, bars name their stage
  std::string chunk_name = "chunk";            // what tells them apart; "copy" if bidirectional
  std::vector<int> chunk_of_stage;             // [virtual stage]: its position among its rank's stages
  std::vector<std::vector<TimelineBar>> rows;  // [rank], in order of start
  // [rank]: what it sends, in order. Empty: no lanes for messages are drawn.
  std::vector<std::vector<TimelineMessage>> messages;
};

// Needs the intervals of the simulation.
Timeline timeline(const Schedule& schedule, const Simulation& simulation);

// Fills in the messages that cross ranks and take time; none do where no hop of `costs` takes any.
void add_messages(Timeline& timeline, const Schedule& schedule, const Simulation& simulation, const StageCosts& costs);

// Of a schedule without a flush, of which timeline() drew all steps from fill to drain: names the versions.
void add_versions(Timeline& timeline, const Schedule& schedule);

// As in textbooks, one row per rank: `F0 F1 .  .  B0---`, with the virtual stage in front (`5F0`) where a rank has
// several. Every action is as long as it takes; a dot is idle time. A picture wider than `columns` is folded like a
// score; one that would fold more than kMostFolds times is scaled down, and labels that no longer fit are cut; of more
// than `most_rows` rows the middle ones are left out. A note says what was done.
inline constexpr int kMostFolds = 6;
struct TextOptions {
  int columns = 120;
  int most_rows = 64;
};
std::string draw_text(const Timeline& timeline, const TextOptions& options = {});

// Self-contained SVG, readable without a network: the colour is the micro-batch, the shade is the operation, grey is
// idle time. Several timelines share the time axis. Throws std::invalid_argument beyond kMostSvgBars bars.
inline constexpr std::size_t kMostSvgBars = 200'000;
std::string draw_svg(const std::vector<Timeline>& timelines);

}  // namespace train_gpt

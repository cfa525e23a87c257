// A pipeline schedule as data: which rank computes what, in which order. Nothing here knows time, MPI, models or GPUs;
// this folder and pipeline/simulate/ depend on the standard library alone.
//
// Terms: p ranks form one pipeline; every rank holds v virtual stages ("chunks"); a training step feeds m micro-batches
// through all p*v virtual stages and back.
#pragma once

#include <string>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/placement.h"

namespace train_gpt {

class ListBuilder;

// One ordered list of actions per rank. Build with rank(r).forward(...); read with actions(r).
struct Schedule {
  Schedule() = default;
  // p empty lists (p and v as the placement says) for m micro-batches.
  Schedule(Placement where, int m);

  std::string name;       // the --schedule name, or the file it came from
  int ranks = 1;          // p
  int chunks = 1;         // v
  int micro_batches = 1;  // m; of a schedule without a flush: of all its steps together
  int steps = 1;          // in the lists, see pipeline/schedule/flushless.h
  Placement placement;
  std::vector<std::vector<Action>> lists;  // [rank]

  const std::vector<Action>& actions(int rank) const { return lists[static_cast<std::size_t>(rank)]; }
  ListBuilder rank(int r);  // pipeline/schedule/list_builder.h
};

}  // namespace train_gpt

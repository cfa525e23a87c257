// Schedules as text, in the CSV form of PyTorch's pipelining: one row per rank, no header; a cell is one action such as
// `2F0` (stage 2, forward, micro-batch 0), `2B0`, `2I0`, `2W0`, or nothing. A fused pair is one cell,
// `(2F0;1B3)OVERLAP_F_B`, read with and without the parentheses. In a bidirectional schedule the second copy's stages
// are p .. 2p-1 (stage p on rank p-1) and take micro-batches m/2 .. m-1. PyTorch's lowered form is read as well: its
// messages (2SEND_F0, 1RECV_B3) are compared with those that follow from the actions, its FSDP cells are ignored.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {

// p, v, m and the placement follow from the rows of the stages: a loop, a V, two directions, or any other table. `name`
// is the file's name: it becomes the schedule's name and opens every message. Throws std::invalid_argument naming row
// and cell (both from 1) for anything that is not a schedule. It does not check that the order can run:
// check_schedule() does.
Schedule parse_schedule_csv(std::string_view text, const std::string& name);

// Also throws std::invalid_argument for a file that cannot be read.
Schedule read_schedule_csv(const std::string& path);

void write_schedule_csv(const Schedule& schedule, std::ostream& output);

}  // namespace train_gpt

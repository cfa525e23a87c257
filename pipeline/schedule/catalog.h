// The schedules by name: which exist, which p, m, v and group sizes each one takes, and its lists. (`auto` is not one
// of them but a search, see pipeline/search/search.h.)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {

struct ScheduleRequest {
  std::string name;       // as --schedule takes it
  int ranks = 1;          // p
  int micro_batches = 1;  // m
  int chunks = 0;         // v, --chunks; 0: the schedule's default
  int group_size = 0;     // g, --group-size; 0: the smallest legal one
};

// Every name, in the order in which tables show them.
const std::vector<std::string>& schedule_names();

bool takes_chunks(const std::string& name);      // --chunks is free for it (otherwise one value is accepted)
bool takes_group_size(const std::string& name);  // it has a --group-size
Placement::Kind placement_kind(const std::string& name);
int default_chunks(const std::string& name);  // 2 for the looped and V schedules, else 1

// The smallest g >= p with m mod g = 0 or >= p (Megatron-LM's rule); m if m < p.
int default_group_size(int p, int m);

// The reason why this schedule cannot exist for these sizes, naming the option, the value and the nearest legal values;
// empty if it can.
std::optional<std::string> violation(const ScheduleRequest& request);

// The lists. Throws std::invalid_argument with the text of violation().
Schedule make_schedule(const ScheduleRequest& request);

}  // namespace train_gpt

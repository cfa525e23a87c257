// The named schedules as competitors of the search.
#pragma once

#include <vector>

#include "pipeline/schedule/catalog.h"
#include "pipeline/search/search.h"
#include "pipeline/search/work.h"

namespace train_gpt::search {

struct NamedSchedule {
  SearchCandidate candidate;
  ScheduleRequest request;
  double bound = 0;       // of the objective, for the same actions in any order
  bool at_bound = false;  // it is as fast as that
};

// Every named schedule that is legal for the request's sizes and allowed placements, whether it fits or not, with its
// figures. Where lists are long and others on the placement already reach the bound, larger groups and schedules that
// keep all micro-batches alive are left out.
std::vector<NamedSchedule> named_schedules(const SearchRequest& request, Work& work);

// The named schedules on one placement: every group size of p, 2p, 4p and m that is legal.
std::vector<ScheduleRequest> named_requests(const SearchRequest& request, const Placement& placement);

// The placements in which the search may build orders of its own.
std::vector<Placement> allowed_placements(const SearchRequest& request);

SearchCandidate make_candidate(const std::string& name, const Placement& placement, const Simulation& simulation,
                               const SearchRequest& request);

}  // namespace train_gpt::search

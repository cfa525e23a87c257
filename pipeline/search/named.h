// The named schedules as competitors of the search.
#pragma once

#include <vector>

#include "pipeline/search/search.h"

namespace train_gpt::search {

struct NamedSchedule {
  SearchCandidate candidate;
  Schedule schedule;
  Simulation simulation;
};

// Every named schedule that is legal for the request's sizes and allowed placements, fitting or not, with its figures.
std::vector<NamedSchedule> named_schedules(const SearchRequest& request);

// The placements in which the search may build orders of its own.
std::vector<Placement> allowed_placements(const SearchRequest& request);

SearchCandidate make_candidate(const std::string& name, const Schedule& schedule, const Simulation& simulation,
                               const SearchRequest& request);

}  // namespace train_gpt::search

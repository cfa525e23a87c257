// The schedule of validation and generation: forwards alone, on the placement of the training schedule.
#pragma once

#include <vector>

namespace train_gpt {

struct Schedule;

// Forwards of `micro_batches` micro-batches (any number >= 1, also fewer than stages) through the first parameter copy
// of `training.placement`. The lists come from a greedy run in unit time in which each rank prefers its deepest stage
// that has work, so that micro-batches leave the pipeline as early as they can and queues stay short.
//
// `longest_queue` gets, per channel index of ChannelTable(placement), the most messages that wait at one time. With
// that many receive slots (at least one) the lists run to their end whatever actions and messages take.
Schedule forward_only(const Schedule& training, int micro_batches, std::vector<int>* longest_queue = nullptr);

}  // namespace train_gpt

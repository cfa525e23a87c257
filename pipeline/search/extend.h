// From an order of few micro-batches to one of many: a stretch of every rank's list in which all of its stages advance
// by the same number of micro-batches (a period) can be repeated as often as wanted. The warm-up before it, the
// cool-down after it and the peaks of memory stay as they are.
#pragma once

#include <optional>

#include "pipeline/search/problem.h"

namespace train_gpt::search {

// `order` of `few` with the most promising period repeated, for the micro-batches of `many`, which differs from `few`
// in nothing else. Empty if no stretch can be repeated.
std::optional<Order> extend(const Problem& few, const Order& order, const Problem& many);

}  // namespace train_gpt::search

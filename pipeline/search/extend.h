// From an order of few micro-batches to one of many: a stretch of every rank's list in which all of its stages advance
// by the same number of micro-batches (a period) can be repeated as often as wanted. What comes before it is the
// warm-up, what follows it the cooldown, and the peaks of memory stay as they are.
#pragma once

#include <optional>

#include "pipeline/search/problem.h"

namespace train_gpt::search {

// `order` of `few` with the period that promises most repeated, for the micro-batches of `many`, which differs from
// `few` in nothing else. Nothing if no stretch can be repeated.
std::optional<Order> extend(const Problem& few, const Order& order, const Problem& many);

}  // namespace train_gpt::search

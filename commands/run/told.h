// A text of rank 0, on all ranks.
#pragma once

#include <string>

#include "kernels/communicator.h"

namespace train_gpt {

// Collective. What the other ranks give is ignored.
std::string told_by_first(Communicator& world, std::string text);

}  // namespace train_gpt

// Gives all ranks a text of rank 0.
#pragma once

#include <string>

#include "kernels/communicator.h"

namespace train_gpt {

// Collective. The texts of other ranks are ignored.
std::string told_by_first(Communicator& world, std::string text);

}  // namespace train_gpt

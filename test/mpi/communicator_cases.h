// Promises of the communicator over MPI that training runs do not show.
#pragma once

#include <string>
#include <vector>

#include "kernels/communicator.h"

namespace train_gpt::test {

// Collective over a world of MPI with three ranks or more; what is wrong, seen from this rank.
std::vector<std::string> wrong_with_messages(Communicator& world);

}  // namespace train_gpt::test

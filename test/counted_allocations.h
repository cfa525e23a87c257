// operator new of the whole test program counts.
#pragma once

#include <cstdint>

namespace train_gpt::test {

// Calls of operator new so far.
std::int64_t allocations_of_this_thread();
std::int64_t allocations_of_this_process();

}  // namespace train_gpt::test

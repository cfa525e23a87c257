// operator new of the whole test program counts.
#pragma once

#include <cstdint>

namespace train_gpt::test {

// Calls of operator new by this thread so far.
std::int64_t allocations_of_this_thread();

}  // namespace train_gpt::test

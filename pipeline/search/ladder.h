// The sizes at which the search works. Answers for other numbers of micro-batches and other memory limits follow from
// these, so that they can be compared: more memory includes every rung below it, and a step of m micro-batches includes
// steps of fewer, one after the other.
#pragma once

#include <vector>

namespace train_gpt::search {

// Numbers of micro-batches: 1, 2, 3, 4, then two per doubling: 6, 8, 12, 16, 24, 32 ...
bool on_ladder(int n);
int ladder_below(int n);  // the largest of them that is <= n; n >= 1

// Memory limits from 1 to `most`, ascending, in activations of one micro-batch through one rank's share (a virtual
// stage keeps 1/chunks of one): 1 to 8 virtual stages, then four limits per doubling (10, 12, 14, 16, 20 ...), and,
// where a fraction stays between I and W, every sum of up to three virtual stages and fractions.
std::vector<double> memory_ladder(int chunks, double weight_memory, double most);

}  // namespace train_gpt::search

// Errors are found at a point and reported there: one block on stderr with kernel, block, thread, source line, the
// orders and seed in force and how to repeat the run; then the process ends with status 86.
#pragma once

#include <string>

namespace emulator {

inline constexpr int kExitStatus = 86;

// `name` is the fault's short name ("barrier-divergence"), `message` one or more lines that say what was found and what
// would be right.
[[noreturn]] void fail(const std::string& name, const std::string& message);

// "file.cu:12 (function)" of a code address, by addr2line; the bare address where that does not work.
std::string source_line(const void* code_address);

}  // namespace emulator

// A test that hangs ends its program by its name, instead of holding everything up: TEST_TIME_LIMIT seconds (600) for
// each test, far more than any takes on a loaded machine. Every GoogleTest program is linked with time_limit.cpp.
#pragma once

namespace train_gpt::test {

// From now on: after so many seconds the process says "no end in sight: NAME" and ends with status 1.
void limit_time_of(const char* name, unsigned seconds);
void lift_time_limit();

}  // namespace train_gpt::test

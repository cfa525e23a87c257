// Whether a planted fault is the one that this run has: every planted place in the program asks
// (test/mutants/README.md).
#pragma once

#include <cstdlib>

// PLANTED_FAULT in the environment names the fault by its number; without it the program is as it should be.
inline bool planted_fault(int number) {
  static const int planted = [] {
    const char* text = std::getenv("PLANTED_FAULT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return planted == number;
}

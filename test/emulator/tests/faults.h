// Planted faults. Each is a small program that does one thing wrong; the driver (fault_test.cpp) runs it in a child
// process, in every order, and demands the report named here.
#pragma once

#include <string>
#include <vector>

// How a build notices a fault.
struct Notice {
  enum class When { never, sometimes, always } when = When::never;  // in how many of the orders and seeds
  // Names in the report: "error [NAME]"; "wrong-result" where only the program's own comparison shows it. Several where
  // the order decides which comes first.
  std::vector<std::string> names;
};
inline Notice always(std::vector<std::string> names) { return {Notice::When::always, std::move(names)}; }
inline Notice sometimes(std::vector<std::string> names) { return {Notice::When::sometimes, std::move(names)}; }
inline Notice never() { return {}; }

struct Fault {
  const char* name;
  void (*run)();
  Notice plain;
  Notice asan;
  Notice race;
};
std::vector<Fault> kernel_faults();
std::vector<Fault> host_faults();

// Ends with "error [wrong-result]" unless `right`.
void demand_right(bool right);

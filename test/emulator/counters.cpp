#include "counters.h"

namespace emulator {

Counters& counters() {
  static Counters all;
  return all;
}

std::map<std::string, BankUse>& bank_use() {
  static std::map<std::string, BankUse> by_kernel;
  return by_kernel;
}

}  // namespace emulator

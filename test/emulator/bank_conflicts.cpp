#include "bank_conflicts.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "block.h"
#include "counters.h"
#include "settings.h"

namespace emulator {
namespace {

constexpr unsigned kBanks = 32;
constexpr unsigned kWordBytes = 4;

// One instruction of one warp, executed for the n-th time: what each lane accesses.
struct WarpAccess {
  unsigned lanes = 0;
  std::array<std::uintptr_t, kWarpLanes> address{};
  std::array<std::size_t, kWarpLanes> bytes{};
};

// An access of one lane that may still grow: compilers split 8- and 16-byte accesses of structs into their members.
struct OpenAccess {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  const void* pc = nullptr;  // of the first part
  const void* last_pc = nullptr;
};

std::uint64_t counted_block = 0;
std::array<OpenAccess, kMaxThreads> open_accesses;
// Per warp and instruction: how often each lane has executed it, and the executions that lanes have reached.
struct Instruction {
  std::array<std::size_t, kWarpLanes> executed{};
  std::vector<WarpAccess> executions;
};
std::array<std::map<const void*, Instruction>, kMaxWarps> instructions;

// Passes that one group of lanes needs: the largest number of different words in one bank.
std::int64_t passes(const WarpAccess& access, unsigned lanes) {
  std::array<std::vector<std::uintptr_t>, kBanks> words;
  for (unsigned rest = lanes & access.lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(__builtin_ctz(rest));
    const std::uintptr_t last = (access.address[lane] + access.bytes[lane] - 1) / kWordBytes;
    for (std::uintptr_t word = access.address[lane] / kWordBytes; word <= last; ++word) {
      auto& bank = words[word % kBanks];
      if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
    }
  }
  std::size_t most = 0;
  for (const auto& bank : words) most = std::max(most, bank.size());
  return static_cast<std::int64_t>(most);
}

void count(const WarpAccess& access, BankUse& use) {
  std::size_t widest = 4;
  for (unsigned rest = access.lanes; rest != 0; rest &= rest - 1) {
    widest = std::max(widest, access.bytes[static_cast<unsigned>(__builtin_ctz(rest))]);
  }
  // 8-byte accesses go by half warps, 16-byte accesses by quarter warps.
  const unsigned group = widest > 8 ? 8 : widest > 4 ? 16 : 32;
  for (unsigned begin = 0; begin < kWarpLanes; begin += group) {
    const unsigned lanes = (group == 32 ? ~0U : (1U << group) - 1) << begin;
    if ((lanes & access.lanes) == 0) continue;
    const std::int64_t needed = passes(access, lanes);
    use.passes += needed;
    use.conflicts += needed - 1;
  }
}

// Files the lane's access under its instruction.
void close_access(unsigned thread) {
  OpenAccess& open = open_accesses[thread];
  if (open.bytes == 0) return;
  const unsigned lane = thread % kWarpLanes;
  Instruction& instruction = instructions[thread / kWarpLanes][open.pc];
  const std::size_t execution = instruction.executed[lane]++;
  if (instruction.executions.size() <= execution) instruction.executions.resize(execution + 1);
  WarpAccess& access = instruction.executions[execution];
  access.lanes |= 1U << lane;
  access.address[lane] = open.begin;
  access.bytes[lane] = open.bytes;
  open.bytes = 0;
}

// Kernels that ran, by function: one template may be several.
struct KernelUse {
  std::string name;  // as written at the launch
  unsigned threads = 0;
  std::size_t dynamic_shared = 0;  // the most
  BankUse banks;
};
std::map<const void*, KernelUse> kernels;

// The last column is the kernel's address in the program, for `nm -C`: it tells the instances of a template apart.
void print_bank_use() {
  std::fprintf(stderr, "shared memory: %-52s %8s %9s %12s %12s %8s %10s\n", "kernel", "threads", "dynamic", "passes",
               "conflicts", "share", "address");
  for (const auto& [function, use] : kernels) {
    Dl_info place{};
    dladdr(function, &place);
    std::fprintf(
        stderr, "               %-52s %8u %9zu %12lld %12lld %7.1f%% %10zx\n", use.name.c_str(), use.threads,
        use.dynamic_shared, static_cast<long long>(use.banks.passes), static_cast<long long>(use.banks.conflicts),
        100.0 * static_cast<double>(use.banks.conflicts) /
            static_cast<double>(std::max<std::int64_t>(use.banks.passes, 1)),
        static_cast<std::size_t>(static_cast<const char*>(function) - static_cast<const char*>(place.dli_fbase)));
  }
}

KernelUse& use_of_kernel() {
  static const int registered = (bank_use(), std::atexit(print_bank_use));
  static_cast<void>(registered);
  const Launch& launch = *the_block.launch;
  KernelUse& use = kernels[launch.function];
  use.name = launch.kernel;
  use.threads = std::max(use.threads, the_block.threads);
  use.dynamic_shared = std::max(use.dynamic_shared, launch.dynamic_shared);
  return use;
}

}  // namespace

void count_bank_access(const void* pointer, std::size_t bytes, const void* pc) {
  if (current_thread == nullptr) return;
  counted_block = the_block.serial;
  OpenAccess& open = open_accesses[current_thread->linear];
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const bool continues = open.bytes != 0 && begin == open.begin + open.bytes && pc != open.last_pc &&
                         begin / 16 == open.begin / 16 && open.begin % (2 * bytes) == 0;
  if (continues) {
    open.bytes += bytes;
    open.last_pc = pc;
    return;
  }
  close_access(current_thread->linear);
  open = {begin, bytes, pc, pc};
}

void finish_bank_counts() {
  if (!settings().bank_conflicts) return;
  BankUse& total = use_of_kernel().banks;
  if (counted_block != the_block.serial) return;
  BankUse block;
  for (unsigned thread = 0; thread < the_block.threads; ++thread) close_access(thread);
  for (unsigned warp = 0; warp < the_block.warps; ++warp) {
    for (const auto& [pc, instruction] : instructions[warp]) {
      for (const WarpAccess& access : instruction.executions) count(access, block);
    }
    instructions[warp].clear();
  }
  for (BankUse* use : {&total, &bank_use()[the_block.launch->kernel]}) {
    use->passes += block.passes;
    use->conflicts += block.conflicts;
  }
}

}  // namespace emulator

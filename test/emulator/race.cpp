#include "race.h"

#if defined(EMULATOR_RACE)

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "bank_conflicts.h"
#include "block.h"
#include "memory.h"
#include "race_order.h"
#include "report.h"
#include "settings.h"
#include "shared_memory.h"

namespace emulator::race {
namespace {

// ---- what was accessed --------------------------------------------------------------------------------------------

constexpr std::uint32_t kAtomic = 1U << 31;
constexpr std::uint32_t kPending = 1U << 30;

struct Record {
  std::uint32_t segment = 0;  // 0: none
  std::uint32_t place = 0;    // code offset and flags
};
struct Cell {  // of one byte
  Record write;
  Record read;
  Record other_read;  // by another thread, not ordered with the first
};

Cell* map_cells(std::size_t bytes) {
  void* cells =
      mmap(nullptr, bytes * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (cells == MAP_FAILED) fail("resources", "cannot reserve address space for the race detector");
  return static_cast<Cell*>(cells);
}

Cell* shared_cells() {
  static Cell* const cells = map_cells(static_cast<std::size_t>(shared_arena.end - shared_arena.begin));
  return cells;
}
Cell* device_cells() {
  static Cell* const cells = map_cells(memory_region().end - memory_region().begin);
  return cells;
}

std::uintptr_t image_base() {
  static const std::uintptr_t base = [] {
    std::uintptr_t found = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
          *static_cast<std::uintptr_t*>(data) = info->dlpi_addr;
          return 1;  // the first is the program
        },
        &found);
    return found;
  }();
  return base;
}
std::uint32_t place_of(const void* pc) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pc) - image_base()) & (kPending - 1);
}

// Constants and __device__ variables: the program's own data, which is not checked.
bool in_program_data(const void* pointer) {
  static const std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges = [] {
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> found;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
            const std::uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            static_cast<decltype(found)*>(data)->emplace_back(begin, begin + info->dlpi_phdr[i].p_memsz);
          }
          return 0;
        },
        &found);
    return found;
  }();
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  return std::any_of(ranges.begin(), ranges.end(), [at](const auto& r) { return at >= r.first && at < r.second; });
}

// ---- reports ------------------------------------------------------------------------------------------------------

std::string describe(const Record& record, const char* did) {
  std::string text = std::string("\n  before  ") + did + " by ";
  if (is_forgotten(record.segment)) return text + "an operation long complete";
  const Segment& then = segment(record.segment);
  const OperationInfo& operation = operation_of(then);
  text += operation.what + " (stream " + std::to_string(operation.stream) + ")";
  if (then.block_serial == 0) return text;
  text += ", block " + std::to_string(then.block) + ", thread " + std::to_string(then.thread);
  return text + "\n          at " +
         source_line(reinterpret_cast<const void*>(image_base() + (record.place & (kPending - 1))));
}

std::string describe_now(const void* pointer, std::size_t bytes, Access kind, const void* pc) {
  const char* const names[] = {"read", "write", "atomic update"};
  std::string text = std::string(names[static_cast<int>(kind)]) + " of " + std::to_string(bytes) + " bytes at ";
  if (in_shared_arena(pointer)) {
    char address[32];
    std::snprintf(address, sizeof address, "%p", pointer);
    text += std::string("shared memory ") + address;
  } else {
    text += describe_address(pointer);
  }
  text += "\n  now     ";
  if (current_thread == nullptr)
    return text + (in_operation ? running_operation().what : "host code, " + source_line(pc));
  return text + "thread " + std::to_string(current_thread->linear) + " at " + source_line(pc);
}

[[noreturn]] void report_race(const Record& earlier, const char* did, const std::string& now) {
  std::string name = "race-between-operations";
  if (!in_operation) {
    name = "host-access-before-synchronisation";
  } else if (!is_forgotten(earlier.segment) && is_running_operation(segment(earlier.segment))) {
    name = segment(earlier.segment).block_serial == the_block.serial ? "race-within-block" : "race-between-blocks";
  }
  fail(name, "nothing orders this " + now + describe(earlier, did));
}

// ---- the check ----------------------------------------------------------------------------------------------------

struct Context {
  const void* pointer;
  std::size_t bytes;
  Access kind;
  const void* pc;
  Record record;
  bool shared;
};

// Shared memory is new for every block.
void drop_other_blocks(Cell& cell) {
  for (Record* record : {&cell.write, &cell.read, &cell.other_read}) {
    if (record->segment != 0 &&
        (is_forgotten(record->segment) || segment(record->segment).block_serial != the_block.serial)) {
      *record = {};
    }
  }
}

void check_written(const Cell& cell, const Context& context) {
  const std::string now = describe_now(context.pointer, context.bytes, context.kind, context.pc);
  if ((cell.write.place & kPending) != 0) {
    fail("cp-async-wait",
         "a cp.async to these bytes has not been waited for: " + now + describe(cell.write, "cp.async"));
  }
  if (context.shared) fail("uninitialised-shared", "nobody in this block has written this: " + now);
  if (find_memory(context.pointer).kind == MemoryKind::device) {
    fail("uninitialised-global", "nobody has written this since its allocation: " + now);
  }
}

void check_order(const Record& earlier, const char* did, const Context& context) {
  if (earlier.segment == 0 || ordered(earlier.segment)) return;
  report_race(earlier, did, describe_now(context.pointer, context.bytes, context.kind, context.pc));
}

void access_byte(Cell& cell, const Context& context) {
  const std::uint32_t mine = context.record.segment;
  if (context.kind == Access::read ? cell.read.segment == mine && mine != 0
                                   : cell.write.segment == mine && cell.write.place == context.record.place &&
                                         cell.read.segment == 0 && mine != 0) {
    return;
  }
  if (context.shared) drop_other_blocks(cell);
  // Copies and messages may move what nobody wrote (padding): only kernels must not read it.
  const bool unwritten = context.kind != Access::write && cell.write.segment == 0 && current_thread != nullptr;
  if ((cell.write.place & kPending) != 0 || unwritten) check_written(cell, context);
  const bool both_atomic = context.kind == Access::atomic && (cell.write.place & kAtomic) != 0;
  if (!both_atomic) check_order(cell.write, "write", context);
  if (context.kind != Access::read) {
    check_order(cell.read, "read", context);
    check_order(cell.other_read, "read", context);
    cell = {context.record, {}, {}};
  } else if (cell.read.segment == 0 || ordered(cell.read.segment)) {
    cell.read = context.record;
  } else {
    cell.other_read = context.record;
  }
}

// Host code between operations: pinned memory must not be in use by the device.
void check_host_access(const Cell& cell, const Context& context) {
  check_order(cell.write, "write", context);
  if (context.kind == Access::read) return;
  check_order(cell.read, "read", context);
  check_order(cell.other_read, "read", context);
}

// Allocations that were accessed of late, as ranges.
struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
std::array<Range, 8> recent{};
unsigned next_recent = 0;

bool inside_allocation(const void* pointer, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  const auto holds = [&](const Range& range) { return at >= range.begin && at + bytes <= range.end; };
  if (std::any_of(recent.begin(), recent.end(), holds)) return true;
  const MemoryRange memory = find_memory(pointer);
  const Range range{memory.begin, memory.begin + memory.bytes};
  if (memory.begin == 0 || !holds(range)) return false;
  recent[next_recent++ % recent.size()] = range;
  return true;
}

// The cells of the range, or nullptr for memory that is nobody else's.
Cell* cells_of(const void* pointer, std::size_t bytes, Access kind, const void* pc) {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  if (in_shared_arena(pointer)) {
    if (!inside_shared_variable(pointer, bytes)) {
      require_shared_range(pointer, bytes, ("access at " + source_line(pc)).c_str());
    }
    return shared_cells() + (static_cast<const char*>(pointer) - shared_arena.begin);
  }
  const MemoryRegion region = memory_region();
  if (at >= region.begin && at < region.end) {
    if (!inside_allocation(pointer, bytes)) {
      fail("out-of-bounds", describe_now(pointer, bytes, kind, pc));
    }
    return device_cells() + (at - region.begin);
  }
  if (current_thread == nullptr || on_own_stack(pointer) || in_program_data(pointer)) return nullptr;
  const char* arguments = static_cast<const char*>(the_block.launch->arguments);
  if (pointer >= arguments && pointer < arguments + the_block.launch->argument_bytes) return nullptr;
  fail("host-pointer", "a kernel accesses " + describe_now(pointer, bytes, kind, pc));
}

}  // namespace

namespace {
// Set while the detector itself runs: it calls templates of the standard library, and the linker may have taken their
// instrumented copies.
bool busy = false;
struct Busy {
  Busy() { busy = true; }
  ~Busy() { busy = false; }
};
}  // namespace

void access(const void* pointer, std::size_t bytes, Access kind, const void* pc) {
  if (busy) return;
  const Busy guard;
  const bool host = !in_operation;
  if (host && (reinterpret_cast<std::uintptr_t>(pointer) < memory_region().begin ||
               find_memory(pointer).kind != MemoryKind::pinned)) {
    return;
  }
  Cell* cells = cells_of(pointer, bytes, kind, pc);
  if (cells == nullptr) return;
  Context context{pointer, bytes, kind, pc, {}, in_shared_arena(pointer)};
  if (host) {
    for (std::size_t i = 0; i < bytes; ++i) check_host_access(cells[i], context);
    return;
  }
  if (context.shared && settings().bank_conflicts) count_bank_access(pointer, bytes, pc);
  if (kind == Access::atomic && current_thread != nullptr && !context.shared) exchange_knowledge(pointer);
  context.record = {current_segment(), place_of(pc) | (kind == Access::atomic ? kAtomic : 0)};
  for (std::size_t i = 0; i < bytes; ++i) access_byte(cells[i], context);
}

void pending(const void* pointer, std::size_t bytes, const void* pc) {
  Cell* cells = cells_of(pointer, bytes, Access::write, pc);
  for (std::size_t i = 0; i < bytes; ++i) cells[i] = {{current_segment(), place_of(pc) | kPending}, {}, {}};
}

void arrived(const void* pointer, std::size_t bytes, const void* pc) {
  Cell* cells = cells_of(pointer, bytes, Access::write, pc);
  for (std::size_t i = 0; i < bytes; ++i) cells[i] = {{current_segment(), place_of(pc)}, {}, {}};
}

void allocations_changed() { recent.fill({}); }

}  // namespace emulator::race

#endif

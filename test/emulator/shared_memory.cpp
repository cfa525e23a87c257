#include "shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "block.h"
#include "device_properties.h"
#include "report.h"
#include "sanitizer.h"

namespace emulator {

SharedArena shared_arena;
std::uint64_t shared_memory_launch = 0;

namespace {

constexpr std::size_t kStaticBytes = 512 << 10;  // half of the arena; variables, red zones and alignment
constexpr std::size_t kArenaBytes = 1 << 20;
constexpr std::size_t kRedZone = 128;
constexpr std::size_t kAlignment = 1024;  // of dynamic shared memory; 128 (all banks) for variables

struct Placed {
  std::string name;
  char* begin = nullptr;
  char* end = nullptr;
};
std::vector<Placed> placed;  // of the running launch; [0] is dynamic shared memory, if any
char* static_end = nullptr;
std::size_t declared_bytes = 0;

void make_arena() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, kArenaBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("resources", "no memory for the shared memory arena");
  shared_arena.begin = static_cast<char*>(memory);
  shared_arena.end = shared_arena.begin + kArenaBytes;
  mprotect(shared_arena.end, page, PROT_NONE);
}

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Fills the variable and the red zone after it, and closes the red zone.
void poison(const Placed& variable) {
  char* red_end = std::min(variable.end + kRedZone, shared_arena.end);
  open_memory(variable.begin, static_cast<std::size_t>(red_end - variable.begin));
  std::memset(variable.begin, 0xFF, static_cast<std::size_t>(red_end - variable.begin));
  close_memory(variable.end, static_cast<std::size_t>(red_end - variable.end));
}

void place(const char* name, const char* file, int line, char* begin, std::size_t bytes) {
  placed.push_back({std::string("'") + name + "' (" + std::to_string(bytes) + " bytes, declared at " + file + ":" +
                        std::to_string(line) + ")",
                    begin, begin + bytes});
  poison(placed.back());
}

[[noreturn]] void fail_out_of_bounds(const std::string& what) { fail("shared-out-of-bounds", what); }

}  // namespace

void shared_memory_launch_begins(std::size_t dynamic_bytes) {
  if (shared_arena.begin == nullptr) make_arena();
  ++shared_memory_launch;
  placed.clear();
  close_memory(shared_arena.begin, kArenaBytes);
  static_end = shared_arena.begin + kRedZone;
  declared_bytes = dynamic_bytes;
  if (dynamic_bytes != 0) {
    const Where where = the_block.launch->where;
    place("dynamic shared memory", where.file, where.line, shared_arena.end - round_up(dynamic_bytes, kAlignment),
          dynamic_bytes);
  }
}

void* place_shared_variable(SharedVariable& variable) {
  require_device_code("__shared__", {variable.file, variable.line});
  const std::size_t alignment = std::max<std::size_t>(variable.alignment, 128);
  char* begin = shared_arena.begin + round_up(static_cast<std::size_t>(static_end - shared_arena.begin), alignment);
  declared_bytes += round_up(variable.bytes, 16);
  const std::size_t limit = device_properties().sharedMemPerBlockOptin;
  const std::size_t dynamic = the_block.launch->dynamic_shared;
  if (declared_bytes - dynamic > device_properties().sharedMemPerBlock || declared_bytes > limit) {
    fail("shared-memory-limit", "the kernel's shared variables have " + std::to_string(declared_bytes - dynamic) +
                                    " bytes, dynamic shared memory " + std::to_string(dynamic) + "; allowed are " +
                                    std::to_string(device_properties().sharedMemPerBlock) + " and together " +
                                    std::to_string(limit));
  }
  static_end = begin + variable.bytes + kRedZone;
  place(variable.name, variable.file, variable.line, begin, variable.bytes);
  variable.launch = shared_memory_launch;
  variable.address = begin;
  return begin;
}

void* dynamic_shared_memory(const char* file, int line) {
  require_device_code("extern __shared__", {file, line});
  if (the_block.launch->dynamic_shared == 0) {
    return shared_arena.end;  // the guard page: any access is reported
  }
  return placed[0].begin;
}

void shared_memory_block_begins() {
  for (const Placed& variable : placed) {
    std::memset(variable.begin, 0xFF, static_cast<std::size_t>(variable.end - variable.begin));
  }
}

void shared_memory_block_ends() {
  for (const Placed& variable : placed) {
    const char* red_end = std::min(variable.end + kRedZone, shared_arena.end);
    open_memory(variable.end, static_cast<std::size_t>(red_end - variable.end));
    const char* hit = std::find_if(variable.end, const_cast<char*>(red_end), [](char c) { return c != '\xFF'; });
    if (hit != red_end) {
      fail_out_of_bounds("the block wrote " + std::to_string(hit - variable.end) + " bytes behind the end of " +
                         variable.name);
    }
    close_memory(variable.end, static_cast<std::size_t>(red_end - variable.end));
  }
}

bool inside_shared_variable(const void* pointer, std::size_t bytes) {
  const char* begin = static_cast<const char*>(pointer);
  return std::any_of(placed.begin(), placed.end(),
                     [&](const Placed& variable) { return begin >= variable.begin && begin + bytes <= variable.end; });
}

void require_shared_range(const void* pointer, std::size_t bytes, const char* what) {
  if (inside_shared_variable(pointer, bytes)) return;
  const char* begin = static_cast<const char*>(pointer);
  const Placed* before = nullptr;
  for (const Placed& variable : placed) {
    if (variable.begin <= begin && (before == nullptr || before->begin < variable.begin)) before = &variable;
  }
  std::string message = std::string(what) + " of " + std::to_string(bytes) + " bytes of shared memory ";
  if (before == nullptr) fail_out_of_bounds(message + "outside every variable");
  fail_out_of_bounds(message + "at byte " + std::to_string(begin - before->begin) + " of " + before->name);
}

}  // namespace emulator

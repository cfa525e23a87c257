#include "fault_handler.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstring>

#include "block.h"
#include "report.h"
#include "settings.h"
#include "shared_memory.h"

#if defined(EMULATOR_ASAN)
// The sanitizer leaves faults to the emulator; leaks of a process that ends in the middle of a launch mean nothing.
extern "C" const char* __asan_default_options() {
  return "handle_segv=0:handle_sigbus=0:use_sigaltstack=0:detect_leaks=0:exitcode=86:detect_stack_use_after_return=0";
}
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1:exitcode=86"; }
extern "C" void __sanitizer_set_death_callback(void (*callback)());
#endif

namespace emulator {
namespace {

void handle_fault(int, siginfo_t* info, void* context) {
  const void* pointer = info->si_addr;
  if (open_on_fault(pointer)) return;
  // A second fault while reporting must not loop.
  signal(SIGSEGV, SIG_DFL);
  signal(SIGBUS, SIG_DFL);
  const auto* machine = static_cast<const ucontext_t*>(context);
  const void* code = reinterpret_cast<const void*>(machine->uc_mcontext.gregs[REG_RIP]);
  if (pointer >= shared_arena.end && shared_arena.end != nullptr &&
      pointer < shared_arena.end + (std::size_t{1} << 12)) {
    fail("shared-out-of-bounds",
         "access behind the end of dynamic shared memory (" +
             std::to_string(the_block.launch == nullptr ? 0 : the_block.launch->dynamic_shared) + " bytes)\n  at " +
             source_line(static_cast<const char*>(code) + 1));
  }
  report_fault(pointer, code);
}

#if defined(EMULATOR_ASAN)
// The sanitizers say what is wrong; this says where.
void say_where() {
  const std::string text =
      "emulator: error [sanitizer]: see beside this\n" + describe_position() + "  repeat  " + repeat_with() + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}
#endif

}  // namespace

void install_fault_handler() {
  static bool prepared = false;
  if (!prepared) {
    prepared = true;
    constexpr std::size_t kBytes = 256 << 10;
    stack_t stack{};
    stack.ss_sp = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack.ss_size = kBytes;
    sigaltstack(&stack, nullptr);
#if defined(EMULATOR_ASAN)
    __sanitizer_set_death_callback(say_where);
#endif
  }
  struct sigaction action {};
  action.sa_sigaction = handle_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace emulator

#if defined(EMULATOR_ASAN)
// UndefinedBehaviorSanitizer calls this when it reports.
extern "C" void __ubsan_on_report() { emulator::say_where(); }
#endif

// Page faults: opening device memory on first touch, and reports of invalid accesses.
#pragma once

namespace emulator {

// Installs the handler for SIGSEGV and SIGBUS on its own stack; again if the program has replaced it.
void install_fault_handler();

// In memory.cpp. Makes the allocation that holds the address accessible if that is right at present; false otherwise.
bool open_on_fault(const void* pointer);
[[noreturn]] void report_fault(const void* pointer, const void* code_address);

}  // namespace emulator

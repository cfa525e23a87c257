# Builds CUDA sources for the host emulator. A project includes this file and names what it wants:
#
#   include test/emulator/emulator.mk
#   build/my_test-race: $(call emulator_needs,race,kernels/scale.cu test/scale_test.cpp)
#   	$(call emulator_link,race,kernels/scale.cu test/scale_test.cpp) -lgtest -lgtest_main
#
# The builds: plain, asan (AddressSanitizer and UndefinedBehaviorSanitizer), race (race detector). emulator_needs is what a
# program of these .cu and .cpp sources depends on, emulator_link the command that links it. EMULATOR_USER_FLAGS go to the
# compiler for the project's own files. .cuh files below the project's root are rewritten too, and found before the
# originals. Programs that use NCCL say so: $(call emulator_needs,race,SOURCES,nccl), likewise emulator_link; that needs MPI
# (MPI_CFLAGS, MPI_LIBS).
#
# Needs NVIDIA's headers, not its compiler. Where there are none, EMULATOR_CUDA_INCLUDE is empty and nothing is built. The
# race build needs clang++.

BUILD ?= build
EMULATOR_DIR := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
EMULATOR_NVCC ?= $(shell command -v nvcc 2>/dev/null)
EMULATOR_CUDA_INCLUDE ?= $(patsubst %/cuda_runtime.h,%,$(firstword $(wildcard \
  $(patsubst %/bin/nvcc,%/include/cuda_runtime.h,$(realpath $(EMULATOR_NVCC))) \
  $(patsubst %/bin/nvcc,%/targets/x86_64-linux/include/cuda_runtime.h,$(realpath $(EMULATOR_NVCC))) \
  /usr/local/cuda/include/cuda_runtime.h /usr/include/cuda_runtime.h)))
EMULATOR_CXX ?= g++
EMULATOR_CLANG ?= $(firstword $(foreach c,clang++ clang++-14 clang++-15 clang++-16,$(if $(shell command -v $(c) 2>/dev/null),$(c))))
EMULATOR_BUILDS := plain asan $(if $(EMULATOR_CLANG),race)
EMULATOR_OBJCOPY ?= objcopy

# -ffp-contract=off: the same bits in all three builds.
EMULATOR_WARNINGS := -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-parameter -Wno-unused-variable -Wno-unused-but-set-variable
EMULATOR_CXXFLAGS := -std=c++20 -g -ffp-contract=off -I$(EMULATOR_DIR)/include -I$(EMULATOR_DIR) -I$(BUILD)/emulated -I. \
  -isystem $(EMULATOR_CUDA_INCLUDE)
EMULATOR_FLAGS_plain := -O2
EMULATOR_FLAGS_asan := -O1 -DEMULATOR_ASAN -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined -fno-omit-frame-pointer
EMULATOR_FLAGS_race := -O2 -DEMULATOR_RACE
# The emulator itself is fast in all builds.
EMULATOR_LIBRARY_FLAGS_plain := -O2
EMULATOR_LIBRARY_FLAGS_asan := -O2 -DEMULATOR_ASAN
EMULATOR_LIBRARY_FLAGS_race := -O2 -DEMULATOR_RACE
EMULATOR_LINK_plain := -ldl
EMULATOR_LINK_asan := -fsanitize=address,undefined -ldl
EMULATOR_LINK_race := -ldl
# Kernel files of the race build call the hooks in race_hooks.cpp on every access. Vectorised loops would hide which thread
# of the program's text reads what; memcpy and its kin are accesses too.
EMULATOR_RACE_CU := -O1 -DEMULATOR_RACE -fsanitize=thread -fno-vectorize -fno-slp-vectorize
EMULATOR_RACE_SYMBOLS := $(foreach f,memcpy memmove memset,--redefine-sym $(f)=emulator_$(f))

EMULATOR_NCCL_SOURCES := $(wildcard $(EMULATOR_DIR)/nccl*.cpp)
EMULATOR_SOURCES := $(filter-out $(EMULATOR_DIR)/rewrite.cpp $(EMULATOR_NCCL_SOURCES),$(wildcard $(EMULATOR_DIR)/*.cpp))
EMULATOR_REWRITE := $(BUILD)/emulator/rewrite
# All .cuh files of the project, rewritten.
EMULATOR_HEADERS := $(patsubst ./%,$(BUILD)/emulated/%,$(shell find . -name '*.cuh' -not -path './build*' -not -path './.*'))

emulator_library = $(BUILD)/emulator/$(1)/libemulator.a
emulator_nccl_library = $(BUILD)/emulator/$(1)/libemulator_nccl.a
emulator_objects = $(patsubst %.cu,$(BUILD)/emulator/$(1)/%.cu.o,$(patsubst %.cpp,$(BUILD)/emulator/$(1)/%.o,$(2)))

emulator_libraries = $(call emulator_library,$(1)) $(if $(filter nccl,$(2)),$(call emulator_nccl_library,$(1)))
emulator_needs = $(call emulator_objects,$(1),$(2)) $(call emulator_libraries,$(1),$(3))
# The emulator comes first and whole: where a template of the standard library was compiled both here and in an instrumented
# kernel file, the linker must take this copy, or the race detector would check itself.
emulator_link = $(EMULATOR_CXX) -o $@ -Wl,--whole-archive $(call emulator_libraries,$(1),$(3)) -Wl,--no-whole-archive \
  $(call emulator_objects,$(1),$(2)) $(EMULATOR_LINK_$(1)) $(if $(filter nccl,$(3)),$(MPI_LIBS))

$(EMULATOR_REWRITE): $(EMULATOR_DIR)/rewrite.cpp
	@mkdir -p $(@D)
	@$(EMULATOR_CXX) -std=c++20 -O1 -Wall -Wextra -Werror $< -o $@

$(BUILD)/emulated/%.cu.cpp: %.cu $(EMULATOR_REWRITE)
	@mkdir -p $(@D)
	@$(EMULATOR_REWRITE) $< > $@.new && mv $@.new $@
$(BUILD)/emulated/%.cuh: %.cuh $(EMULATOR_REWRITE)
	@mkdir -p $(@D)
	@$(EMULATOR_REWRITE) $< > $@.new && mv $@.new $@
.PRECIOUS: $(BUILD)/emulated/%.cu.cpp $(BUILD)/emulated/%.cuh

define emulator_build_rules
$(BUILD)/emulator/$(1)/%.o: %.cpp
	@mkdir -p $$(@D)
	@echo "  emulator $(1)  $$<"
	@$$(EMULATOR_CXX) $$(EMULATOR_CXXFLAGS) $$(EMULATOR_FLAGS_$(1)) $$(EMULATOR_WARNINGS) $$(EMULATOR_USER_FLAGS) -MMD -MP -c $$< -o $$@

$(BUILD)/emulator/$(1)/$(EMULATOR_DIR)/%.o: $(EMULATOR_DIR)/%.cpp
	@mkdir -p $$(@D)
	@echo "  emulator $(1)  $$<"
	@$$(EMULATOR_CXX) $$(EMULATOR_CXXFLAGS) $$(EMULATOR_LIBRARY_FLAGS_$(1)) $$(EMULATOR_LOOP_FLAGS) $$(MPI_CFLAGS) -Wall -Wextra -Wshadow -Werror -MMD -MP -c $$< -o $$@

$(call emulator_library,$(1)): $(call emulator_objects,$(1),$(EMULATOR_SOURCES))
	@rm -f $$@ && ar rcs $$@ $$^
$(call emulator_nccl_library,$(1)): $(call emulator_objects,$(1),$(EMULATOR_NCCL_SOURCES))
	@rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach b,$(EMULATOR_BUILDS),$(eval $(call emulator_build_rules,$(b))))

define emulator_cu_rule
$(BUILD)/emulator/$(1)/%.cu.o: $(BUILD)/emulated/%.cu.cpp $$(EMULATOR_HEADERS)
	@mkdir -p $$(@D)
	@echo "  emulator $(1)  $$*.cu"
	@$$(EMULATOR_CXX) $$(EMULATOR_CXXFLAGS) -iquote $$(dir $$*) -include cuda_runtime.h $$(EMULATOR_FLAGS_$(1)) $$(EMULATOR_WARNINGS) \
	  $$(EMULATOR_USER_FLAGS) -MMD -MP -c $$< -o $$@
endef
$(foreach b,plain asan,$(eval $(call emulator_cu_rule,$(b))))

$(BUILD)/emulator/race/%.cu.o: $(BUILD)/emulated/%.cu.cpp $(EMULATOR_HEADERS)
	@mkdir -p $(@D)
	@echo "  emulator race  $*.cu"
	@$(EMULATOR_CLANG) $(EMULATOR_CXXFLAGS) -iquote $(dir $*) -include cuda_runtime.h $(EMULATOR_RACE_CU) $(EMULATOR_WARNINGS) \
	  $(EMULATOR_USER_FLAGS) -MMD -MP -c $< -o $@
	@$(EMULATOR_OBJCOPY) $(EMULATOR_RACE_SYMBOLS) $@

# Loops over matrices are worth vector instructions.
$(BUILD)/emulator/%/$(EMULATOR_DIR)/cublas_product.o: EMULATOR_LOOP_FLAGS := -O3 -march=native
$(BUILD)/emulator/%/$(EMULATOR_DIR)/ptx.o: EMULATOR_LOOP_FLAGS := -O3

ifneq ($(EMULATOR_CUDA_INCLUDE),)
-include $(EMULATOR_DIR)/emulator_tests.mk $(EMULATOR_DIR)/library_tests.mk
else
.PHONY: test-emulator check-emulator
test-emulator check-emulator:
	@echo "emulator: skipped, no CUDA headers found (EMULATOR_CUDA_INCLUDE=DIR names them)"
endif

# train_gpt: `make help` lists what can be made and how to run one test.
#
# A new .cpp file is picked up by its folder: nothing has to be listed here.

SANITIZE ?= 0
DEBUG ?= 0
BUILD ?= $(if $(filter 1,$(SANITIZE)),build-sanitize,$(if $(filter thread,$(SANITIZE)),build-thread,$(if $(filter 1,$(DEBUG)),build-debug,build)))
MAKEFLAGS += --no-print-directory --jobs=$(shell nproc)
.DEFAULT_GOAL := all
FOLDERS := $(patsubst %/,%,commands/ $(wildcard commands/*/) $(wildcard pipeline/*/)) model data kernels/cpu kernels
SCRIPTED_GOALS := deps format help clean check-includes
# These two must work on a fresh machine: what is missing is installed (with apt, as root), not only named.
INSTALL ?= $(if $(filter demo test check,$(MAKECMDGOALS)),1)

# What `make deps PREFIX=DIR` unpacked, without root: compiler, linker, loader and shell look there as well.
override PREFIX := $(abspath $(or $(PREFIX),$(shell cat .prefix 2>/dev/null)))
ifneq ($(PREFIX),)
MULTIARCH := $(shell $(CXX) -print-multiarch)
colon_list = $(subst $() ,:,$(strip $(1)))
PREFIX_LIBRARIES := $(PREFIX)/usr/lib/$(MULTIARCH) $(PREFIX)/usr/lib
export CPLUS_INCLUDE_PATH := $(call colon_list,$(addprefix $(PREFIX)/usr/include,/ /$(MULTIARCH)/mpich /$(MULTIARCH)) $(CPLUS_INCLUDE_PATH))
export LIBRARY_PATH := $(call colon_list,$(PREFIX_LIBRARIES) $(LIBRARY_PATH))
export LD_LIBRARY_PATH := $(call colon_list,$(PREFIX_LIBRARIES) $(LD_LIBRARY_PATH))
export PATH := $(PREFIX)/usr/bin:$(PATH)
endif

# ---- what this machine has: scripts/find_libraries.sh test-links every library and writes config.mk ----------------------
ifeq ($(filter $(SCRIPTED_GOALS),$(MAKECMDGOALS)),)
-include $(BUILD)/config.mk
endif
$(BUILD)/config.mk: scripts/find_libraries.sh
	@mkdir -p $(BUILD)
	@INSTALL='$(INSTALL)' CUDA='$(CUDA)' MPI_HOME='$(MPI_HOME)' NCCL_HOME='$(NCCL_HOME)' CXX='$(CXX)' scripts/find_libraries.sh $@

ifeq ($(filter $(SCRIPTED_GOALS),$(MAKECMDGOALS))$(filter 0,$(CUDA)),)
-include $(BUILD)/cuda.mk
endif
$(BUILD)/cuda.mk: scripts/find_cuda.sh
	@mkdir -p $(BUILD)
	@CUDA='$(CUDA)' CUDA_HOME='$(CUDA_HOME)' CUDA_ARCHS='$(CUDA_ARCHS)' NCCL_HOME='$(NCCL_HOME)' CXX='$(CXX)' scripts/find_cuda.sh $@

comma := ,
# Kernels get -O3, and normal numbers, whose loop becomes five times as fast; the rest spends no time worth mentioning and
# compiles in half the time with -O1.
SANITIZER_FLAGS := $(if $(filter 1,$(SANITIZE)),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined,$(if $(filter thread,$(SANITIZE)),-fsanitize=thread))
# The user's own CXXFLAGS come last, so that they win.
optimise = $(if $(SANITIZER_FLAGS),-O1 $(SANITIZER_FLAGS) -fno-omit-frame-pointer -Wno-stringop-overflow -Wno-array-bounds,$(if $(filter 1,$(DEBUG)),-O0 -g3,$(if $(filter kernels/% model/normal_numbers.cpp,$(1)),-O3,$(if $(filter commands/% test/%,$(1)),-O1,-O2)))) $(CXXFLAGS)
# -Wno-stringop-overflow -Wno-array-bounds, above: with sanitizers g++ 12 warns of sizes that it made up itself.
# -Wno-restrict: g++ 12 warns of overlaps inside its own std::string (GCC bug 105651).
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion $(if $(findstring clang,$(CXX)),,-Wno-restrict) -Werror
# -ffp-contract=off: two pieces of code that compute the same formula must give the same bits; kernels ask for FMA by name.
# -fno-math-errno: no errno from sqrt, so that loops with it vectorise; values are the same.
CXXFLAGS_ALL := -std=c++20 -g1 -march=native -ffp-contract=off -fno-math-errno $(WARNINGS) -I. -pthread $(MPI_CFLAGS)
LDLIBS_ALL := $(MPI_LIBS) $(PREFIX_LIBRARIES:%=-Wl$(comma)--disable-new-dtags$(comma)-rpath$(comma)%) -lpcre2-8 -lpthread $(LDLIBS)

sources = $(wildcard $(1)/*.cpp)
objects = $(patsubst %.cpp,$(BUILD)/%.o,$(call sources,$(1)))
LIBRARY_OBJECTS := $(foreach f,$(FOLDERS),$(call objects,$(f)))
LIBRARY := $(BUILD)/libtrain_gpt.a

.PHONY: all demo test check check-includes bench lint format deps gpu-bundle compile_commands.json clean help
all: train_gpt

$(BUILD)/%.o: %.cpp $(BUILD)/config.mk
	@mkdir -p $(@D)
	@echo "  c++  $<"
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise,$<) -MMD -MP -c $< -o $@

$(BUILD)/train_gpt.o: train_gpt.cu $(BUILD)/config.mk
	@mkdir -p $(@D)
	@echo "  c++  $<"
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise,$<) -MMD -MP -x c++ -c $< -o $@

# ---- the cuda device: kernels by nvcc, the rest of kernels/cuda by the host's compiler ------------------------------------
# Where there is no GPU to run them, tests and demo compile the kernels for one architecture only: half the time.
CUDA_ARCHS ?= $(if $(filter test demo,$(MAKECMDGOALS)),$(lastword $(CUDA_DEFAULT_ARCHS)),$(CUDA_DEFAULT_ARCHS))
CUDA_GENCODE = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=$(if $(filter $(a),$(lastword $(CUDA_ARCHS))),[sm_$(a)$(comma)compute_$(a)],sm_$(a)))
# --fmad=false: as -ffp-contract=off above.
NVCCFLAGS_ALL = -std=c++20 -O3 -ccbin $(CXX) $(CUDA_GENCODE) --fmad=false --Werror all-warnings -Xptxas -v -I. $(CUDA_CFLAGS) $(NCCL_CFLAGS) $(NVCCFLAGS)
NVCC_BUILD = $(BUILD)/nvcc-$(subst $() ,-,$(strip $(CUDA_ARCHS)))
ifneq ($(CUDA_NVCC),)
# Without NCCL messages between ranks go through host memory and MPI.
WITHOUT_NCCL = $(if $(NCCL_LIBS),,kernels/cuda/nccl_%)
NVCC_OBJECTS = $(patsubst %.cu,$(NVCC_BUILD)/%.o,$(filter-out $(WITHOUT_NCCL),$(wildcard kernels/cuda/*.cu)))
CUDA_OBJECTS = $(NVCC_OBJECTS) $(filter-out $(WITHOUT_NCCL:%=$(BUILD)/%),$(call objects,kernels/cuda))
$(BUILD)/kernels/cuda/%.o: CXXFLAGS_ALL += $(CUDA_CFLAGS) $(NCCL_CFLAGS) $(if $(NCCL_LIBS),,-DTRAIN_GPT_WITHOUT_NCCL)
$(BUILD)/commands/run/session.o: CXXFLAGS_ALL += -DTRAIN_GPT_CUDA

# Registers that spill to memory are an error: the kernels are sized so that none do.
$(NVCC_OBJECTS): $(NVCC_BUILD)/%.o: %.cu $(BUILD)/cuda.mk
	@mkdir -p $(@D)
	@echo "  nvcc $(CUDA_ARCHS)  $<"
	@$(CUDA_NVCC) $(NVCCFLAGS_ALL) -MMD -MP -MF $(@:.o=.d) -c $< -o $@ 2> $(@:.o=.ptxas) || { cat $(@:.o=.ptxas); exit 1; }
	@if grep -B 2 -E '[1-9][0-9]* bytes spill' $(@:.o=.ptxas); then echo "error: registers spill to memory" >&2; rm -f $@; exit 1; fi
endif

# What is compiled for: empty without CUDA. The program is linked again when it changes, though no object is newer.
$(BUILD)/cuda_archs: always
	@mkdir -p $(BUILD)
	@echo '$(if $(CUDA_NVCC),$(CUDA_ARCHS))' | cmp -s - $@ || echo '$(if $(CUDA_NVCC),$(CUDA_ARCHS))' > $@
.PHONY: always
$(BUILD)/train_gpt $(BUILD)/commands/run/session.o: $(BUILD)/cuda_archs

$(LIBRARY): $(LIBRARY_OBJECTS)
	@rm -f $@ && ar rcs $@ $^

$(BUILD)/train_gpt: $(BUILD)/train_gpt.o $(CUDA_OBJECTS) $(LIBRARY)
	@echo "  link $@"
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise) $(filter %.o %.a,$^) -o $@ $(CUDA_LIBS) $(NCCL_LIBS) $(LDLIBS_ALL)

train_gpt: $(BUILD)/train_gpt
	@ln -sf $(BUILD)/train_gpt train_gpt

# ---- tests: one GoogleTest binary per folder of test/, each with a time limit that names the test that hangs -------------
SUITES := kernels model data pipeline commands
TIME_LIMIT := $(BUILD)/test/time_limit.o
COUNTING := pipeline commands
define suite_rule
$(BUILD)/test_$(1): $$(patsubst %.cpp,$(BUILD)/%.o,$$(wildcard test/$(1)/*.cpp test/$(1)/*/*.cpp)) $$(if $$(filter pipeline,$(1)),$(BUILD)/test/model/stage_chain.o) $$(TIME_LIMIT) $$(if $$(filter $(1),$(COUNTING)),$(BUILD)/test/counted_allocations.o) $$(LIBRARY) $$(if $$(filter commands,$(1)),$$(CUDA_OBJECTS))
	@echo "  link $$@"
	@$$(CXX) $$(CXXFLAGS_ALL) $$(call optimise) $$(filter %.o,$$^) $$(LIBRARY) -o $$@ -lgtest -lgtest_main $$(if $$(filter commands,$(1)),$$(CUDA_LIBS) $$(NCCL_LIBS)) $$(LDLIBS_ALL)
endef
$(foreach s,$(SUITES),$(eval $(call suite_rule,$(s))))
# These run the program itself.
$(BUILD)/test_commands: | $(BUILD)/train_gpt
EXISTING_SUITES := $(foreach s,$(SUITES),$(if $(wildcard test/$(s)/*.cpp test/$(s)/*/*.cpp),$(s)))


# Every schedule over MPI, many cases in one job.
MPIRUN ?= $(if $(MPI_HOME),$(MPI_HOME)/bin/mpirun,$(or $(PREFIX:%=%/usr/bin/mpirun.mpich),$(shell command -v mpirun.mpich || echo mpirun)))
$(BUILD)/test_mpi: $(call objects,test/mpi) $(BUILD)/test/pipeline/train/training_runs.o $(LIBRARY)
	@echo "  link $@"
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise) $^ -o $@ $(LDLIBS_ALL)

TEST_COMMANDS = scripts/check_includes.sh test/scripts/check_includes_test.sh $(EXISTING_SUITES:%=$(BUILD)/test_%) '$(MPIRUN) -n 8 $(BUILD)/test_mpi'
test: $(EXISTING_SUITES:%=$(BUILD)/test_%) $(BUILD)/test_mpi train_gpt
	@scripts/run_tests.sh $(TEST_COMMANDS)

# What takes longer: sanitizers, threads, slow transports, schedules under random delays, fifty million actions. Sanitized
# programs are built without CUDA: its sources are checked by the emulator's own builds. UCX's memory hooks act in threads
# that are ending, where ThreadSanitizer cannot follow.
SWEEP = $(MPIRUN) -n 8 $(BUILD)/test_mpi
# A library that MPI_Init loads and unloads again leaves a kilobyte behind: no leaks are looked for in programs under mpirun.
WITHOUT_LEAKS_OF_MPI := ASAN_OPTIONS=detect_leaks=0
WITHOUT_UCX_HOOKS := UCX_MEM_MMAP_HOOK_MODE=none UCX_MEM_EVENTS=no
check: test check-emulator mutants
	@$(MAKE) CUDA=0 SANITIZE=1 $(EXISTING_SUITES:%=build-sanitize/test_%) build-sanitize/train_gpt
	@$(MAKE) CUDA=0 SANITIZE=thread build-thread/test_pipeline build-thread/test_mpi
	@scripts/run_tests.sh $(patsubst %,build-sanitize/test_%,$(filter-out commands,$(EXISTING_SUITES))) \
	  '$(WITHOUT_LEAKS_OF_MPI) build-sanitize/test_commands' \
	  "$(WITHOUT_UCX_HOOKS) build-thread/test_pipeline --gtest_filter='Trainer*:OptimisticStep*:Resume*'" \
	  '$(WITHOUT_UCX_HOOKS) build-thread/test_mpi --local --full' '$(SWEEP) --full' '$(SWEEP) --sharding' '$(SWEEP) --delays' \
	  '$(SWEEP) --synchronous-sends' '$(SWEEP) --optimistic --delays' '$(SWEEP) --optimistic --synchronous-sends' \
	  'UCX_TLS=posix,self $(SWEEP)' 'UCX_TLS=tcp,self $(SWEEP) --abort-at-end' 'scripts/check_starts.sh $(BUILD)/train_gpt' \
	  'scripts/check_kills.sh $(BUILD)/train_gpt 20' 'scripts/check_together.sh $(BUILD)/train_gpt' \
	  'scripts/check_clock.sh $(BUILD)/train_gpt' 'scripts/check_two_hosts.sh $(BUILD)/train_gpt' '$(FUZZ_CHECK)' \
	  'scripts/check_docs.py ./train_gpt' \
	  'scripts/check_huggingface.sh ./train_gpt' 'scripts/check_muon.sh ./train_gpt' \
	  'test/scripts/get_data_test.sh ./train_gpt' \
	  'scripts/check_simulator_scale.sh ./train_gpt && echo 1 passed, 0 failed' \
	  'scripts/check_search_scale.sh ./train_gpt && echo 1 passed, 0 failed' 'scripts/check_layouts.py ./train_gpt' \
	  'scripts/check_timed_auto.py ./train_gpt' \
	  'scripts/check_whatif.sh ./train_gpt' \
	  'test/scripts/page_test.sh ./train_gpt' \
	  "$(BUILD)/test_pipeline --gtest_also_run_disabled_tests --gtest_filter='SearchProperties.DISABLED_*'" \
	  $(if $(CUDA_NVCC),'test/scripts/find_cuda_test.sh $(BUILD)/cuda.mk')

# CUDA without a GPU: the host emulator and its own tests.
include test/emulator/emulator.mk
test: $(EMULATOR_TEST_NEEDS)
TEST_COMMANDS += $(EMULATOR_TEST_COMMANDS)
ifeq ($(EMULATOR_CUDA_INCLUDE),)
test: test-emulator
endif
ifneq ($(EMULATOR_CUDA_INCLUDE),)
include test/cuda/cuda_tests.mk
include test/cuda/trainer_tests.mk
endif
include test/cuda/gpu_tests.mk
include test/fuzz/fuzz.mk

demo: train_gpt
	@scripts/demo.sh ./train_gpt

# Without root: make deps PREFIX=DIR, after which every make looks below DIR.
deps:
	@INSTALL=1 UNPACK='$(if $(PREFIX),1)' PREFIX='$(PREFIX)' CXX='$(CXX)' scripts/find_libraries.sh
	@$(if $(PREFIX),echo '$(PREFIX)' > .prefix)

LINTED = $(wildcard $(FOLDERS:%=%/*.cpp))
lint: $(BUILD)/config.mk
	@git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run -Werror
	@echo $(LINTED) | tr ' ' '\n' | xargs -P $$(nproc) -n 4 clang-tidy --quiet -- -x c++ $(filter-out -Werror -Wno-restrict,$(CXXFLAGS_ALL))

# What a machine with a GPU and no network needs of `make deps`, for scripts/gpu_check.sh.
gpu-bundle: $(BUILD)/config.mk
	@scripts/make_gpu_bundle.sh .gpu-bundle/bundle.tar.gz

# What scripts/gpu_check.sh trains on.
$(BUILD)/golden_files: $(BUILD)/test/cuda/golden_files.o
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise) $^ -o $@

# ---- benchmarks: one program per file of test/bench/ --------------------------------------------------------------------
BENCHES := $(patsubst test/bench/%.cpp,$(BUILD)/%,$(wildcard test/bench/*_bench.cpp))
$(BUILD)/%_bench: $(BUILD)/test/bench/%_bench.o $(LIBRARY)
	@echo "  link $@"
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise) $^ -o $@ $(LDLIBS_ALL)

bench: $(BENCHES) train_gpt
	@set -e; for program in $(BENCHES); do $$program; done
	@scripts/bench_training.sh ./train_gpt
	@scripts/bench_side_by_side.py ./train_gpt --pytorch "$(PYTORCH)" --llmc "$(LLMC)" $(BENCH_OPTIONS)

# Which folder may include which: also the first part of `make test`.
check-includes:
	@scripts/check_includes.sh

# For clangd and other tools that want to know how each file is compiled.
INDEXED = $(foreach f,$(FOLDERS),$(call sources,$(f))) train_gpt.cu $(wildcard kernels/cuda/*.cpp test/*/*.cpp test/*/*/*.cpp)
EMULATED_HEADERS = -I$(EMULATOR_DIR)/include -I$(EMULATOR_DIR) $(EMULATOR_CUDA_INCLUDE:%=-isystem %)
compile_commands.json: $(BUILD)/config.mk
	@{ echo '['; for file in $(INDEXED); do \
	  case $$file in test/cuda/*) headers='$(EMULATED_HEADERS)';; *) headers=;; esac; \
	  printf ',\n{"directory": "%s", "file": "%s", "command": "%s -c %s"}' '$(CURDIR)' "$$file" \
	    "$(CXX) $(CXXFLAGS_ALL) $$headers $(CUDA_CFLAGS) -x c++" "$$file"; \
	done | tail -n +2; echo; echo ']'; } > $@
	@echo "wrote $@"

format:
	@git ls-files -co --exclude-standard '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

help:
	@cat scripts/make_help.txt

clean:
	@rm -rf build build-sanitize build-thread build-debug build-fuzz train_gpt compile_commands.json

include test/mutants/mutants.mk

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

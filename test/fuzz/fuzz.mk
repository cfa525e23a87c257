# `make fuzz`: libFuzzer over everything that reads a file, each reader for FUZZ_SECONDS; what it finds is left in build-fuzz/found/.
# `make check` takes FUZZ_RUNS inputs of each, always the same ones. Needs clang with its libFuzzer.
FUZZ_CXX ?= clang++
FUZZ_SECONDS ?= 60
FUZZ_RUNS ?= 3000
FUZZ_READERS := $(notdir $(wildcard test/fuzz/seeds/*))
# The readers, and what they stand on: no more is compiled anew.
FUZZED := $(foreach f,data pipeline/schedule pipeline/simulate pipeline/draw commands/report,$(wildcard $(f)/*.cpp)) \
  $(patsubst %,model/%.cpp,checkpoint config file_checksum huggingface normal_numbers optimizer parameters range_file safetensors) \
  commands/cli/wording.cpp commands/run/checkpoint_manifest.cpp kernels/device.cpp pipeline/plan/plan_bytes.cpp \
  pipeline/planner/unit_profile.cpp pipeline/train/state_file.cpp

$(BUILD)/fuzz_readers: $(FUZZED:%.cpp=$(BUILD)/%.o) $(BUILD)/test/fuzz/fuzz_readers.o
	@echo "  link $@"
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise) -fsanitize=fuzzer $^ -o $@ $(LDLIBS_ALL)

FUZZ_BUILD = $(MAKE) CUDA=0 CXX=$(FUZZ_CXX) BUILD=build-fuzz \
  CXXFLAGS="-O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined" build-fuzz/fuzz_readers
# For make check: says why it is skipped where there is no clang with libFuzzer.
FUZZ_CHECK = echo "int LLVMFuzzerTestOneInput() { return 0; }" | $(FUZZ_CXX) -x c -fsanitize=fuzzer - -o /dev/null 2>/dev/null || { \
  echo "skipped: no libFuzzer (apt-get install clang)"; exit 0; }; \
  $(FUZZ_BUILD) >/dev/null && test/fuzz/run_fuzz.sh build-fuzz/fuzz_readers -runs=$(FUZZ_RUNS) $(FUZZ_READERS)
.PHONY: fuzz
fuzz:
	@$(FUZZ_BUILD)
	@test/fuzz/run_fuzz.sh build-fuzz/fuzz_readers -max_total_time=$(FUZZ_SECONDS) $(FUZZ_READERS)

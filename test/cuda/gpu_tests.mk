# For a real GPU, built by nvcc and run by scripts/gpu_check.sh: build/cuda_tests-gpu, the tests of this folder on the card (but
# large_index_test.cpp, whose memory is the emulator's), and build/rooflines-gpu. build/rooflines-plain is the latter under the
# emulator, with tiny sizes: part of make check.

GPU_TEST_OBJECTS := $(patsubst test/%.cpp,$(BUILD)/on_gpu/%.o,$(filter-out %/large_index_test.cpp,$(wildcard test/cuda/*_test.cpp)) test/cuda/on_gpu/main.cpp \
  test/kernels/reference.cpp test/pipeline/train/training_runs.cpp)
$(BUILD)/on_gpu/%.o: test/%.cpp $(BUILD)/config.mk
	@mkdir -p $(@D)
	@echo "  c++ on GPUs  $<"
	@$(CXX) $(CXXFLAGS_ALL) $(CUDA_CFLAGS) -Itest/cuda/on_gpu $(call optimise,$<) -MMD -MP -c $< -o $@

ifneq ($(CUDA_NVCC),)
$(BUILD)/cuda_tests-gpu: $(GPU_TEST_OBJECTS) $(CUDA_OBJECTS) $(LIBRARY) $(BUILD)/cuda_archs
	@echo "  link $@"
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise) $(filter %.o %.a,$^) -o $@ $(CUDA_LIBS) $(NCCL_LIBS) -lgtest $(LDLIBS_ALL)
$(BUILD)/rooflines-gpu: $(BUILD)/on_gpu/cuda/rooflines.o $(CUDA_OBJECTS) $(LIBRARY) $(BUILD)/cuda_archs
	@echo "  link $@"
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise) $(filter %.o %.a,$^) -o $@ $(CUDA_LIBS) $(NCCL_LIBS) $(LDLIBS_ALL)
endif

ifneq ($(EMULATOR_CUDA_INCLUDE),)
ROOFLINES := test/cuda/rooflines.cpp $(CUDA_SOURCES)
$(BUILD)/rooflines-plain: $(call emulator_needs,plain,$(ROOFLINES)) $(LIBRARY)
	@echo "  link $@"
	@$(call emulator_link,plain,$(ROOFLINES)) $(LIBRARY) $(LDLIBS_ALL)
endif

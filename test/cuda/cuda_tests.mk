# The cuda device under the host emulator: build/cuda_tests-plain, -asan, -race. Needs NVIDIA's headers (the emulator says
# where it found them), and no compiler and no GPU of theirs.
#
#   make test-cuda     plain build, small sizes: seconds; part of make test
#   make check-cuda    all sizes, sanitizers, race detector, and every barrier and wait left out once; part of make check
#   make kernel-table  registers, shared memory, occupancy and bank conflicts of every kernel; needs nvcc
#   make sass-table    what limits the attention kernels, from their instructions; needs nvcc and cuobjdump

# Communication is tested by trainer_tests.mk.
CUDA_SOURCES := $(filter-out %_communicator.cpp %/side_stream.cpp %/nccl_link.cpp %/setup_deadline.cpp %/nccl_collectives.cu,$(wildcard kernels/cuda/*.cu kernels/cuda/*.cpp))
CUDA_TEST_SOURCES := $(CUDA_SOURCES) $(wildcard test/cuda/*_test.cpp) test/kernels/reference.cpp test/pipeline/train/training_runs.cpp
CUDA_TEST_BUILDS := plain asan race
# Everything that knows no CUDA, as the product has it.
CUDA_TEST_REFERENCE := $(TIME_LIMIT) $(LIBRARY)

define cuda_test_program
$(BUILD)/cuda_tests-$(1): $$(call emulator_needs,$(1),$$(CUDA_TEST_SOURCES)) $$(CUDA_TEST_REFERENCE)
	@echo "  link $$@"
	@$$(call emulator_link,$(1),$$(CUDA_TEST_SOURCES)) $$(CUDA_TEST_REFERENCE) -lgtest -lgtest_main $$(LDLIBS_ALL)
endef
$(foreach b,$(CUDA_TEST_BUILDS),$(eval $(call cuda_test_program,$(b))))

# The small sizes, as one command.
$(BUILD)/test_cuda: $(BUILD)/cuda_tests-plain
	@printf '#!/bin/sh\nexec $< "--gtest_filter=-Large/*:CudaTrainingLarge.*" "$$@"\n' > $@ && chmod +x $@
test: $(BUILD)/test_cuda
TEST_COMMANDS += $(BUILD)/test_cuda

.PHONY: test-cuda check-cuda
test-cuda: $(BUILD)/test_cuda
	@$< --gtest_brief=1 2> $(BUILD)/test_cuda.log || { cat $(BUILD)/test_cuda.log; exit 1; }

# Small cases that reach every barrier and wait, in tiles and out of them.
CUDA_MUTATED := --gtest_brief=1 '--gtest_filter=Small/CudaAttention.*_B1_T65_*:Small/CudaRows.*_B1_T65_*:Small/CudaRows.*_B1_T130_*:Small/CudaShardChain.*:Small/CudaTensors.*:CudaSquaredSums.*:CudaMarks.*:CudaMemory.*'
CUDA_MUTATED_SOURCES := $(CUDA_SOURCES) $(filter-out %/ptx.cuh,$(wildcard kernels/cuda/*.cuh))
# Other seeds of the random order of threads and streams.
CUDA_SEEDS := 2 3 4
check-cuda: $(CUDA_TEST_BUILDS:%=$(BUILD)/cuda_tests-%)
	@scripts/run_tests.sh $(CUDA_TEST_BUILDS:%=$(BUILD)/cuda_tests-%) \
	  $(foreach s,$(CUDA_SEEDS),'EMULATOR_SEED=$(s) $(BUILD)/cuda_tests-plain --gtest_filter="-CudaTraining*"')
	@test/emulator/mutate.sh --only kernels/cuda/ --sources $(CUDA_MUTATED_SOURCES) -- \
	  $(BUILD)/cuda_tests-race $(CUDA_MUTATED) -- $(BUILD)/cuda_tests-plain $(CUDA_MUTATED)

# Part of make check where there is one.
check: check-cuda

# Registers, shared memory, occupancy and bank conflicts of every kernel: the table in kernels/cuda/README.md. (The kernel
# that adds NCCL's slices has neither shared memory nor a place in these tests.)
CUDA_TABLED := --gtest_filter=Small/CudaAttention*:Large/CudaAttention*HS256:Small/CudaRows*:Small*/CudaMatmul*:Small/CudaShardChain*:*AdamW*:*CudaTensors*:CudaSquaredSums*:CudaConversions*:CudaMemory.Add*:*CudaMuon*
kernel_table = EMULATOR_BANKS=1 $(BUILD)/cuda_tests-race --gtest_brief=1 '$(CUDA_TABLED)' > $(BUILD)/banks.log 2>&1 || { cat $(BUILD)/banks.log; exit 1; }; \
  scripts/kernel_table.py --ptxas $(filter-out %/nccl_collectives.ptxas,$(NVCC_OBJECTS:.o=.ptxas)) \
  --program $(BUILD)/cuda_tests-race --report $(BUILD)/banks.log
# What limits the attention kernels, by their instructions; the bound that the forward must not lose.
SASS_TABLE := scripts/sass_table.py --require 'flash_forward_kernel<64>=75' --require 'flash_forward_kernel<128>=75'
.PHONY: kernel-table sass-table check-kernel-table
kernel-table: $(NVCC_OBJECTS) $(BUILD)/cuda_tests-race
	@$(kernel_table)
sass-table: $(filter %_forward.o %_backward.o,$(NVCC_OBJECTS))
	@$(SASS_TABLE) $^
# Against the record, which is nvcc 13.0's for 8.0 and 9.0.
check-kernel-table: $(NVCC_OBJECTS) $(BUILD)/cuda_tests-race
	@if [ '$(CUDA_ARCHS)' = '80 90' ] && $(CUDA_NVCC) --version | grep -q 'release 13.0'; then $(kernel_table) --recorded kernels/cuda/README.md; \
	  else echo 'skipped: the table of kernels is that of nvcc 13.0 for 8.0 and 9.0'; fi
	@if command -v cuobjdump > /dev/null; then $(SASS_TABLE) $(filter %_forward.o %_backward.o,$(NVCC_OBJECTS)); \
	  else echo 'skipped: no cuobjdump to count instructions (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)'; fi
ifneq ($(CUDA_NVCC),)
check-cuda: check-kernel-table
endif

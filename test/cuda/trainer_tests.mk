# The trainer on emulated GPUs under mpirun: build/trainer_sweep-plain, -asan, -race.
#
#   make test-cuda-trainer     part of make test: seconds
#   make check-cuda-trainer    more steps, other orders of streams, sanitizers, race detector, and every event wait left out once;
#                              part of make check

TRAINER_SWEEP := test/cuda/trainer_sweep.cpp $(wildcard kernels/cuda/*.cu kernels/cuda/*.cpp)
# The rest as the product has it.
TRAINER_SWEEP_LIBRARY := $(BUILD)/test/pipeline/train/training_runs.o $(LIBRARY)

define trainer_sweep_program
$(BUILD)/trainer_sweep-$(1): $$(call emulator_needs,$(1),$$(TRAINER_SWEEP),nccl) $$(TRAINER_SWEEP_LIBRARY)
	@echo "  link $$@"
	@$$(call emulator_link,$(1),$$(TRAINER_SWEEP),nccl) $$(TRAINER_SWEEP_LIBRARY) $$(LDLIBS_ALL)
endef
$(foreach b,$(EMULATOR_BUILDS),$(eval $(call trainer_sweep_program,$(b))))

# With one source replaced, for mutate_calls.sh; the race detector sees a missing order also where timing hides it.
ifneq ($(MUTATED),)
MUTATED_SWEEP := $(filter-out $(MUTATED),$(TRAINER_SWEEP)) $(BUILD)/mutated/$(MUTATED)
$(BUILD)/trainer_sweep-mutated: $(call emulator_needs,race,$(MUTATED_SWEEP),nccl) $(TRAINER_SWEEP_LIBRARY)
	@$(call emulator_link,race,$(MUTATED_SWEEP),nccl) $(TRAINER_SWEEP_LIBRARY) $(LDLIBS_ALL)
endif

# The program itself on emulated GPUs, and the tests that run it: build/train_gpt-emulated, build/test_gpu_program.
EMULATED_PROGRAM := commands/run/session.cpp $(wildcard kernels/cuda/*.cu kernels/cuda/*.cpp)
$(BUILD)/emulator/plain/commands/run/session.o: EMULATOR_USER_FLAGS += -DTRAIN_GPT_CUDA
$(BUILD)/train_gpt-emulated: $(BUILD)/train_gpt.o $(call emulator_needs,plain,$(EMULATED_PROGRAM),nccl) $(LIBRARY)
	@echo "  link $@"
	@$(call emulator_link,plain,$(EMULATED_PROGRAM),nccl) $(BUILD)/train_gpt.o $(LIBRARY) $(LDLIBS_ALL)
GPU_PROGRAM_TESTS := $(patsubst %.cpp,$(BUILD)/%.o,$(wildcard test/gpu_program/*.cpp))
$(BUILD)/test_gpu_program: $(GPU_PROGRAM_TESTS) $(BUILD)/test/commands/program.o $(TIME_LIMIT) $(LIBRARY) | $(BUILD)/train_gpt-emulated
	@echo "  link $@"
	@$(CXX) $(CXXFLAGS_ALL) $(call optimise) $^ -o $@ -lgtest -lgtest_main $(LDLIBS_ALL)

trainer_sweep = EMULATOR_DEVICES=4 timeout 1500 $(MPIRUN) -n 4 $(BUILD)/trainer_sweep-$(1)
# Without what takes long: a peer that only stops moving is noticed after 8 s.
gpu_program_quickly = $(BUILD)/test_gpu_program --gtest_filter=-*Stopped*:*Killed*:*Optimistic*:*PlansWith*
TEST_COMMANDS += '$(call trainer_sweep,plain)' '$(gpu_program_quickly)'
test: $(BUILD)/trainer_sweep-plain $(BUILD)/test_gpu_program

.PHONY: test-cuda-trainer check-cuda-trainer
test-cuda-trainer: $(BUILD)/trainer_sweep-plain $(BUILD)/test_gpu_program
	@scripts/run_tests.sh '$(call trainer_sweep,plain)' '$(gpu_program_quickly)'

# In the order that shows a missing wait always, and in random ones, with the sanitizers and the race detector; then every event
# wait between streams left out once, and every call that orders messages and the compute stream.
TRAINER_MUTATED = env EMULATOR_STREAMS=latest EMULATOR_DEVICES=4 timeout 100 $(MPIRUN) -n 4 $(BUILD)/trainer_sweep-plain
TRAINER_MUTATED_CALLS := kernels/cuda/nccl_communicator.cpp kernels/cuda/staged_communicator.cpp pipeline/train/executor.cpp pipeline/train/trainer_reductions.cpp
check-cuda-trainer: $(EMULATOR_BUILDS:%=$(BUILD)/trainer_sweep-%) $(BUILD)/test_gpu_program $(BUILD)/rooflines-plain $(BUILD)/golden_files $(BUILD)/cuda_tests-plain
	@$(BUILD)/rooflines-plain --small > /dev/null
	@scripts/run_tests.sh $(BUILD)/test_gpu_program 'EMULATOR_STREAMS=latest $(call trainer_sweep,plain) --full' \
	  'EMULATOR_STREAMS=random EMULATOR_SEED=1 $(call trainer_sweep,plain)' 'EMULATOR_STREAMS=random EMULATOR_SEED=2 $(call trainer_sweep,plain)' \
	  $(foreach b,$(filter asan race,$(EMULATOR_BUILDS)),'$(call trainer_sweep,$(b))')
	@test/emulator/mutate.sh --only 'cudaStreamWaitEvent kernels/cuda/' \
	  -- $(TRAINER_MUTATED) --only 'zb-v p=2 d=1 fp32' -- $(TRAINER_MUTATED) --only '1f1b p=2 d=1 bf16 staged'
	@$(if $(filter race,$(EMULATOR_BUILDS)),test/cuda/mutate_calls.sh $(BUILD) $(MPIRUN) $(TRAINER_MUTATED_CALLS))
	@scripts/gpu_check.sh --device emulated --output $(BUILD)/gpu_check.json
check: check-cuda-trainer

# The trainer on emulated GPUs under mpirun: build/trainer_sweep-plain, -asan, -race.
#
#   make test-cuda-trainer     part of make test: seconds
#   make check-cuda-trainer    more steps, other orders of streams, sanitizers, race detector, and every event wait left out once;
#                              part of make check

TRAINER_SWEEP := test/cuda/trainer_sweep.cpp $(wildcard kernels/cuda/*.cu kernels/cuda/*.cpp)
# The rest as the product has it.
TRAINER_SWEEP_LIBRARY := $(BUILD)/test/pipeline/training_runs.o $(LIBRARY)

define trainer_sweep_program
$(BUILD)/trainer_sweep-$(1): $$(call emulator_needs,$(1),$$(TRAINER_SWEEP),nccl) $$(TRAINER_SWEEP_LIBRARY)
	@echo "  link $$@"
	@$$(call emulator_link,$(1),$$(TRAINER_SWEEP),nccl) $$(TRAINER_SWEEP_LIBRARY) $$(LDLIBS_ALL)
endef
$(foreach b,$(EMULATOR_BUILDS),$(eval $(call trainer_sweep_program,$(b))))

trainer_sweep = EMULATOR_DEVICES=4 timeout 600 $(MPIRUN) -n 4 $(BUILD)/trainer_sweep-$(1)
TEST_COMMANDS += '$(call trainer_sweep,plain)'
test: $(BUILD)/trainer_sweep-plain

.PHONY: test-cuda-trainer check-cuda-trainer
test-cuda-trainer: $(BUILD)/trainer_sweep-plain
	@scripts/run_tests.sh '$(call trainer_sweep,plain)'

# In the order that shows a missing wait always, and in random ones; then every event wait between streams left out once.
TRAINER_MUTATED = env EMULATOR_STREAMS=latest EMULATOR_DEVICES=4 timeout 100 $(MPIRUN) -n 4 $(BUILD)/trainer_sweep-plain
check-cuda-trainer: $(BUILD)/trainer_sweep-plain
	@scripts/run_tests.sh 'EMULATOR_STREAMS=latest $(call trainer_sweep,plain) --full' \
	  'EMULATOR_STREAMS=random EMULATOR_SEED=1 $(call trainer_sweep,plain)' 'EMULATOR_STREAMS=random EMULATOR_SEED=2 $(call trainer_sweep,plain)'
	@test/emulator/mutate.sh --only 'cudaStreamWaitEvent kernels/cuda/' \
	  -- $(TRAINER_MUTATED) --only 'zb-v p=2 d=1 fp32' -- $(TRAINER_MUTATED) --only '1f1b p=2 d=1 bf16 staged'
check: check-cuda-trainer

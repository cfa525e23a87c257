# The emulator's own tests: make test-emulator (fast), make check-emulator (all orders, builds, mutations, speed).

EMULATOR_PROGRAMS := reduction tiled_product pipeline
EMULATOR_TEST_DIR := $(EMULATOR_DIR)/tests
EMULATOR_BIN := $(BUILD)/emulator/bin

# $(call emulator_test_program,BUILD,NAME,SOURCES)
define emulator_test_program
$(EMULATOR_BIN)/$(2)-$(1): $$(call emulator_needs,$(1),$(3))
	@mkdir -p $$(@D)
	@$$(call emulator_link,$(1),$(3))
endef
$(foreach b,$(EMULATOR_BUILDS),$(foreach p,$(EMULATOR_PROGRAMS),$(eval \
  $(call emulator_test_program,$(b),$(p),$(EMULATOR_TEST_DIR)/programs/$(p).cu))))

# The same files by nvcc, as a project would build them.
EMULATOR_NVCC_OBJECTS := $(if $(EMULATOR_NVCC),$(EMULATOR_PROGRAMS:%=$(BUILD)/emulator/nvcc/%.o))
$(BUILD)/emulator/nvcc/%.o: $(EMULATOR_TEST_DIR)/programs/%.cu $(wildcard $(EMULATOR_TEST_DIR)/programs/*.cuh)
	@mkdir -p $(@D)
	@echo "  nvcc  $<"
	@$(EMULATOR_NVCC) -std=c++20 -O3 -ccbin $(EMULATOR_CXX) -gencode arch=compute_80,code=sm_80 \
	  -gencode arch=compute_90,code=[sm_90,compute_90] --Werror all-warnings -c $< -o $@

EMULATOR_FAULTS := $(addprefix $(EMULATOR_TEST_DIR)/,fault_test.cpp kernel_faults.cu host_faults.cu)
$(foreach b,$(EMULATOR_BUILDS),$(eval $(call emulator_test_program,$(b),fault_test,$(EMULATOR_FAULTS))))

EMULATOR_GOOD := $(addprefix $(EMULATOR_TEST_DIR)/,good_test.cpp good_kernels.cu good_streams.cu good_syntax.cu)
$(foreach b,$(EMULATOR_BUILDS),$(eval $(call emulator_test_program,$(b),good_test,$(EMULATOR_GOOD))))
$(foreach b,$(EMULATOR_BUILDS),$(eval $(call emulator_test_program,$(b),speed,$(EMULATOR_TEST_DIR)/speed.cu)))

# Each program in every order: tests/run_orders.sh. The race build notices most, so that the fast test has it.
EMULATOR_FAST_BUILDS := $(filter plain race,$(EMULATOR_BUILDS))
emulator_binaries = $(foreach b,$(1),$(foreach p,good_test fault_test $(EMULATOR_PROGRAMS),$(EMULATOR_BIN)/$(p)-$(b)))
EMULATOR_RUN_ORDERS := $(EMULATOR_TEST_DIR)/run_orders.sh

.PHONY: test-emulator check-emulator
# The fast test, for a project that runs it among its own: what must be built, and commands that succeed and say how many
# cases passed.
EMULATOR_TEST_NEEDS := $(call emulator_binaries,$(EMULATOR_FAST_BUILDS)) $(EMULATOR_NVCC_OBJECTS)
EMULATOR_TEST_COMMANDS := $(EMULATOR_FAST_BUILDS:%=$(EMULATOR_BIN)/fault_test-%) '$(EMULATOR_RUN_ORDERS) --seeds 1 \
  $(foreach b,$(EMULATOR_FAST_BUILDS),$(foreach p,good_test $(EMULATOR_PROGRAMS),$(EMULATOR_BIN)/$(p)-$(b)))'
test-emulator: $(EMULATOR_TEST_NEEDS)
	@set -e; for command in $(EMULATOR_TEST_COMMANDS); do sh -c "$$command"; done

# Everything: all builds, more seeds, a mutation of every barrier, wait and event in the programs, the speed.
check-emulator: $(call emulator_binaries,$(EMULATOR_BUILDS)) $(EMULATOR_NVCC_OBJECTS) $(EMULATOR_BIN)/speed-plain
	@$(EMULATOR_RUN_ORDERS) --seeds 10 $(foreach b,$(EMULATOR_BUILDS),$(foreach p,good_test $(EMULATOR_PROGRAMS),$(EMULATOR_BIN)/$(p)-$(b)))
	@set -e; for b in $(EMULATOR_BUILDS); do $(EMULATOR_BIN)/fault_test-$$b --seeds 40; done
ifneq ($(filter race,$(EMULATOR_BUILDS)),)
	@set -e; for p in $(EMULATOR_PROGRAMS); do $(EMULATOR_DIR)/mutate.sh --sources $(EMULATOR_TEST_DIR)/programs/$$p.cu \
	  -- $(EMULATOR_BIN)/$$p-race -- env EMULATOR_STREAMS=latest $(EMULATOR_BIN)/$$p-race; done
endif
	@$(EMULATOR_BIN)/speed-plain

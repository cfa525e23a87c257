# The emulator's own tests: make test-emulator (fast), make check-emulator (all orders, builds, mutations, speed).

EMULATOR_PROGRAMS := reduction tiled_product pipeline
EMULATOR_TEST_DIR := $(EMULATOR_DIR)/tests
EMULATOR_BIN := $(BUILD)/emulator/bin
# A fault or program is run in all of these.
EMULATOR_ORDERS := forward/issue reverse/latest random/random

# $(call emulator_test_program,BUILD,NAME,SOURCES)
define emulator_test_program
$(EMULATOR_BIN)/$(2)-$(1): $$(call emulator_needs,$(1),$(3))
	@mkdir -p $$(@D)
	@$$(call emulator_link,$(1),$(3))
endef
$(foreach b,$(EMULATOR_BUILDS),$(foreach p,$(EMULATOR_PROGRAMS),$(eval \
  $(call emulator_test_program,$(b),$(p),$(EMULATOR_TEST_DIR)/programs/$(p).cu))))
EMULATOR_TEST_BINARIES := $(foreach b,$(EMULATOR_BUILDS),$(EMULATOR_PROGRAMS:%=$(EMULATOR_BIN)/%-$(b)))

# The same files by nvcc, as a project would build them.
EMULATOR_NVCC_OBJECTS := $(if $(EMULATOR_NVCC),$(EMULATOR_PROGRAMS:%=$(BUILD)/emulator/nvcc/%.o))
$(BUILD)/emulator/nvcc/%.o: $(EMULATOR_TEST_DIR)/programs/%.cu $(wildcard $(EMULATOR_TEST_DIR)/programs/*.cuh)
	@mkdir -p $(@D)
	@echo "  nvcc  $<"
	@$(EMULATOR_NVCC) -std=c++20 -O3 -ccbin $(EMULATOR_CXX) -gencode arch=compute_80,code=sm_80 \
	  -gencode arch=compute_90,code=[sm_90,compute_90] --Werror all-warnings -c $< -o $@

EMULATOR_FAULTS := $(addprefix $(EMULATOR_TEST_DIR)/,fault_test.cpp kernel_faults.cu host_faults.cu)
$(foreach b,$(EMULATOR_BUILDS),$(eval $(call emulator_test_program,$(b),fault_test,$(EMULATOR_FAULTS))))

EMULATOR_GOOD := $(addprefix $(EMULATOR_TEST_DIR)/,good_test.cpp good_kernels.cu good_streams.cu)
$(foreach b,$(EMULATOR_BUILDS),$(eval $(call emulator_test_program,$(b),good_test,$(EMULATOR_GOOD))))

# The tests of the emulated cuBLAS and NCCL: make test-emulator-libraries (part of test-emulator, seconds).

EMULATOR_LIBRARY_BIN := $(BUILD)/emulator/bin
EMULATOR_CUBLAS_TEST := $(wildcard $(EMULATOR_DIR)/tests/cublas*.cpp)
EMULATOR_NCCL_CASES := $(filter-out %/nccl_test.cpp,$(wildcard $(EMULATOR_DIR)/tests/nccl_*.cpp))

# $(call emulator_library_test,BUILD)
define emulator_library_test
$(EMULATOR_LIBRARY_BIN)/cublas_test-$(1): $$(call emulator_needs,$(1),$$(EMULATOR_CUBLAS_TEST))
	@mkdir -p $$(@D)
	@$$(call emulator_link,$(1),$$(EMULATOR_CUBLAS_TEST)) -lgtest -lgtest_main

$(EMULATOR_LIBRARY_BIN)/nccl_cases-$(1): $$(call emulator_needs,$(1),$$(EMULATOR_NCCL_CASES),nccl)
	@mkdir -p $$(@D)
	@$$(call emulator_link,$(1),$$(EMULATOR_NCCL_CASES),nccl)
endef
$(foreach b,$(EMULATOR_BUILDS),$(eval $(call emulator_library_test,$(b))))

# Starts the jobs; itself an ordinary program.
$(EMULATOR_LIBRARY_BIN)/nccl_test: $(EMULATOR_DIR)/tests/nccl_test.cpp
	@mkdir -p $(@D)
	@$(EMULATOR_CXX) -std=c++20 -O1 -Wall -Wextra -Wshadow -Werror $< -o $@ -lgtest -lgtest_main

EMULATOR_TEST_NEEDS += $(EMULATOR_LIBRARY_BIN)/cublas_test-plain
EMULATOR_TEST_COMMANDS += $(EMULATOR_LIBRARY_BIN)/cublas_test-plain
.PHONY: test-emulator test-emulator-libraries check-emulator-libraries
test-emulator: test-emulator-libraries
test-emulator-libraries: $(EMULATOR_LIBRARY_BIN)/cublas_test-plain
	@$< --gtest_brief=1 2> $(EMULATOR_LIBRARY_BIN)/cublas_test.log || { cat $(EMULATOR_LIBRARY_BIN)/cublas_test.log; exit 1; }

# Also with the sanitizers and the race detector.
check-emulator: check-emulator-libraries
check-emulator-libraries: test-emulator-libraries $(EMULATOR_LIBRARY_BIN)/cublas_test-asan $(EMULATOR_LIBRARY_BIN)/cublas_test-race
	@set -e; for b in asan race; do $(EMULATOR_LIBRARY_BIN)/cublas_test-$$b --gtest_brief=1 2> $(EMULATOR_LIBRARY_BIN)/cublas_test-$$b.log \
	  || { cat $(EMULATOR_LIBRARY_BIN)/cublas_test-$$b.log; exit 1; }; done

ifneq ($(MPI_LIBS),)
test-emulator-libraries: test-emulator-nccl
check-emulator-libraries: check-emulator-nccl
.PHONY: test-emulator-nccl check-emulator-nccl
EMULATOR_TEST_NEEDS += $(EMULATOR_LIBRARY_BIN)/nccl_test $(EMULATOR_LIBRARY_BIN)/nccl_cases-plain
EMULATOR_TEST_COMMANDS += 'NCCL_CASES=$(EMULATOR_LIBRARY_BIN)/nccl_cases-plain $(EMULATOR_LIBRARY_BIN)/nccl_test'
test-emulator-nccl: $(EMULATOR_LIBRARY_BIN)/nccl_test $(EMULATOR_LIBRARY_BIN)/nccl_cases-plain
	@NCCL_CASES=$(EMULATOR_LIBRARY_BIN)/nccl_cases-plain $< --gtest_brief=1
check-emulator-nccl: $(EMULATOR_LIBRARY_BIN)/nccl_test $(EMULATOR_LIBRARY_BIN)/nccl_cases-asan $(EMULATOR_LIBRARY_BIN)/nccl_cases-race
	@set -e; for b in asan race; do NCCL_CASES=$(EMULATOR_LIBRARY_BIN)/nccl_cases-$$b $< --gtest_brief=1; done
endif

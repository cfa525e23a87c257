# Planted faults: `make mutants` plants all of test/mutants/*.faults into one build and demands that the tests notice each of them;
# quick.faults, over few files, is part of `make test`. MUTANTS=REGEX picks faults by name.
MUTANT_SUITES := test_pipeline test_model test_kernels test_data test_commands test_mpi
MUTANT_PROGRAMS := $(MUTANT_SUITES) train_gpt
$(BUILD)/plant: test/mutants/plant.cpp
	@mkdir -p $(@D)
	@$(CXX) -std=c++20 -O1 -Wall -Wextra -Werror $< -o $@

# Only files that have faults are compiled anew; the rest of each program is the product's and the tests' own objects.
define mutant_rules
MUTANT_FILES_$(1) := $$(sort $$(shell sed -n 's/^file: //p' $(2)))
MUTANT_OBJECTS_$(1) := $$(patsubst %.cpp,$(BUILD)/mutants/$(1)/%.o,$$(MUTANT_FILES_$(1)))
MUTANT_REST_$(1) := $$(filter-out $$(patsubst %.cpp,$(BUILD)/%.o,$$(MUTANT_FILES_$(1))),$$(LIBRARY_OBJECTS))
$(BUILD)/mutants/$(1)/planted: $(BUILD)/plant $(2) $$(MUTANT_FILES_$(1))
	@$(BUILD)/plant $(BUILD)/mutants/$(1) $(2) && touch $$@
# The files' own times do not change where their text does not, so that one new fault compiles one file.
$$(patsubst %,$(BUILD)/mutants/$(1)/%,$$(MUTANT_FILES_$(1))): $(BUILD)/mutants/$(1)/planted ;
$$(MUTANT_OBJECTS_$(1)): $(BUILD)/mutants/$(1)/%.o: $(BUILD)/mutants/$(1)/%.cpp $(BUILD)/config.mk
	@mkdir -p $$(@D)
	@echo "  c++ with faults  $$*.cpp"
	@$$(CXX) $$(CXXFLAGS_ALL) -w $$(call optimise,$$*.cpp) -MMD -MP -c $$< -o $$@
$(BUILD)/mutants/$(1)/library.a: $$(MUTANT_OBJECTS_$(1)) $$(MUTANT_REST_$(1))
	@rm -f $$@ && ar rcs $$@ $$^
$(BUILD)/mutants/$(1)/bin/test_mpi: $(call objects,test/mpi) $(BUILD)/test/pipeline/train/training_runs.o $(BUILD)/mutants/$(1)/library.a
	@mkdir -p $$(@D) && $$(CXX) $$(CXXFLAGS_ALL) $$^ -o $$@ $$(LDLIBS_ALL)
$(BUILD)/mutants/$(1)/bin/train_gpt: $(BUILD)/train_gpt.o $$(CUDA_OBJECTS) $(BUILD)/mutants/$(1)/library.a
	@mkdir -p $$(@D) && $$(CXX) $$(CXXFLAGS_ALL) $$^ -o $$@ $$(CUDA_LIBS) $$(NCCL_LIBS) $$(LDLIBS_ALL)
# No patsubst: its % would be the stem of this rule.
$(BUILD)/mutants/$(1)/bin/test_%: $$$$(addprefix $(BUILD)/,$$$$(subst .cpp,.o,$$$$(wildcard test/$$$$*/*.cpp test/$$$$*/*/*.cpp))) $$$$(if $$$$(filter pipeline,$$$$*),$(BUILD)/test/model/stage_chain.o) $(TIME_LIMIT) $$$$(if $$$$(filter $(COUNTING),$$$$*),$(BUILD)/test/counted_allocations.o) $(BUILD)/mutants/$(1)/library.a $$$$(if $$$$(filter commands,$$$$*),$$(CUDA_OBJECTS))
	@mkdir -p $$(@D) && $$(CXX) $$(CXXFLAGS_ALL) $$(filter %.o,$$^) $(BUILD)/mutants/$(1)/library.a -o $$@ -lgtest -lgtest_main $$(if $$(filter commands,$$*),$$(CUDA_LIBS) $$(NCCL_LIBS)) $$(LDLIBS_ALL)
# The suites that this list asks for, and the program where one of them runs it.
MUTANT_BINARIES_$(1) := $$(sort $$(shell sed -n 's/^suite: \([a-z_]*\).*/\1/p' $(2)))
MUTANT_BINARIES_$(1) += $$(if $$(filter test_commands,$$(MUTANT_BINARIES_$(1))),train_gpt)
mutants-$(1): $$(MUTANT_BINARIES_$(1):%=$(BUILD)/mutants/$(1)/bin/%)
	@test/mutants/run_mutants.sh $(BUILD)/mutants/$(1) $$(MUTANTS)
.PHONY: mutants-$(1)
endef
.SECONDEXPANSION:
$(eval $(call mutant_rules,quick,test/mutants/quick.faults))
$(eval $(call mutant_rules,all,$(wildcard test/mutants/*.faults)))

.PHONY: mutants
mutants: mutants-all
test: $(MUTANT_BINARIES_quick:%=$(BUILD)/mutants/quick/bin/%)
TEST_COMMANDS += 'test/mutants/run_mutants.sh $(BUILD)/mutants/quick'

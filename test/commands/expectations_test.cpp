#include "commands/expectations.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace train_gpt {
namespace {

Simulation example() {
  Simulation simulation;
  simulation.makespan = 27;
  simulation.span = 26;
  simulation.bubble = 0.25;
  simulation.bubble_span = 0.125;
  simulation.peak_live = {3, 4, 2};
  simulation.peak_pending_weight = {0, 1.5, 1};
  simulation.messages = 48;
  return simulation;
}

bool met(const std::string& text) {
  const std::vector<Expectation> all = parse_expectations(text);
  bool every = true;
  for (const Expectation& it : all) every = every && is_met(it, example());
  return every;
}

TEST(Expectations, EveryFigureAndRelation) {
  for (const char* text :
       {"makespan<=27", "makespan>=27", "makespan=27", "span<26.1", "span>25.9", "bubble<=0.25", "bubble=25%",
        "span-bubble<13%", "peak<=4", "peak=4", "pending=1.5", "messages<=48", "makespan <= 27, peak<=4"})
    EXPECT_TRUE(met(text)) << text;
  for (const char* text : {"makespan<27", "makespan>27", "makespan<=26.999", "bubble<25%", "peak<=3", "messages=47",
                           "makespan<=27,peak<4"})
    EXPECT_FALSE(met(text)) << text;
}

TEST(Expectations, VerdictsNameWhatWasFound) {
  const std::vector<Expectation> all = parse_expectations("makespan<=26,peak<=4");
  EXPECT_EQ(verdict(all[0], example()), "makespan<=26: no, 27");
  EXPECT_EQ(verdict(all[1], example()), "peak<=4: yes, 4");
}

TEST(Expectations, WhatIsNoConditionIsRefused) {
  for (const char* text : {"", "makespan", "makespan<=", "makespan<=x", "makespan=>27", "speed<=3",
                           "makespan<=27,,peak<=4", "peak<=4%", "makespan<=nan", "makespan<=1e999"}) {
    EXPECT_THROW(parse_expectations(text), std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace train_gpt

// The page of one schedule: its data by hand, and nothing that a schedule's name could break.
#include "pipeline/draw/page.h"

#include <gtest/gtest.h>

#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

std::string page_of(const ScheduleRequest& request, const Costs& costs = {}, double weight_memory = 1) {
  const Schedule schedule = make_schedule(request);
  return schedule_page(schedule, simulate(schedule, costs), weight_memory);
}

// One micro-batch through two ranks and back: F from 0 to 1 and 1 to 2, B from 2 to 4 and 4 to 6.
TEST(SchedulePage, HasTheActionsAndWhereTheyTakeTheirInputsFrom) {
  const std::string page = page_of({.name = "1f1b", .ranks = 2, .micro_batches = 1}, {}, 0.25);
  EXPECT_NE(
      page.find("const d = {makespan:6,chunks:1,weightMemory:0.25,stages:[{previous:-1,next:1},"
                "{previous:0,next:-1},],ranks:[\n[['F',0,0,0,1],['B',0,0,4,6],],\n[['F',1,0,1,2],['B',1,0,2,4],],]}"),
      std::string::npos)
      << page.substr(page.find("const d = "), 300);
  EXPECT_NE(page.find("1f1b, p = 2, m = 1: 6 ms, bubble 50%"), std::string::npos);
}

TEST(SchedulePage, EscapesTheNameOfAFile) {
  Schedule schedule = make_schedule({.name = "1f1b", .ranks = 1, .micro_batches = 1});
  schedule.name = "</title><script>alert(1)</script>";
  const std::string page = schedule_page(schedule, simulate(schedule, Costs{}), 1);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;alert(1)"), std::string::npos);
}

}  // namespace
}  // namespace train_gpt

// Numbers in words, as people write them.
#pragma once

#include <cstdint>
#include <string>

namespace train_gpt {

// "1 rank", "2 ranks".
std::string counted(std::int64_t n, const std::string& noun);

// "40 s", "2 min 5 s", "3 h 50 min", "2 d 4 h": the two largest units.
std::string duration_text(double seconds);
// "40 s", "2 min", "4 h": one unit, for estimates.
std::string rough_duration(double seconds);
// "0:40", "2:05", "3:50:00": for columns.
std::string clock_text(double seconds);

// 1234567 as "1,234,567".
std::string grouped_digits(std::int64_t n);

}  // namespace train_gpt

// Texts of any bytes in one: each behind its length. What ranks send each other, which JSON, for one, could not hold.
#pragma once

#include <string>
#include <string_view>

namespace train_gpt {

void pack(std::string& packed, const std::string& text);
// Takes the next text off.
std::string unpack(std::string_view& packed);

}  // namespace train_gpt

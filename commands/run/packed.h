// Several texts of arbitrary bytes in one, each after its length, for ranks to send each other. JSON could not hold
// them.
#pragma once

#include <string>
#include <string_view>

namespace train_gpt {

void pack(std::string& packed, const std::string& text);
// Takes the next text off.
std::string unpack(std::string_view& packed);

}  // namespace train_gpt

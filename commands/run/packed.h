// Packs several texts of arbitrary bytes into one, each after its length, for messages between ranks. JSON could not
// hold such texts.
#pragma once

#include <string>
#include <string_view>

namespace train_gpt {

void pack(std::string& packed, const std::string& text);
// Removes the next text and returns it.
std::string unpack(std::string_view& packed);

}  // namespace train_gpt

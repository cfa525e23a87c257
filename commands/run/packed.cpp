#include "commands/run/packed.h"

#include <cstdint>
#include <cstring>

namespace train_gpt {

void pack(std::string& packed, const std::string& text) {
  const std::uint64_t size = text.size();
  packed.append(reinterpret_cast<const char*>(&size), sizeof size);
  packed += text;
}

std::string unpack(std::string_view& packed) {
  std::uint64_t size = 0;
  std::memcpy(&size, packed.data(), sizeof size);
  std::string text(packed.substr(sizeof size, size));
  packed.remove_prefix(sizeof size + size);
  return text;
}

}  // namespace train_gpt

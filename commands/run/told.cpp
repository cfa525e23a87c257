#include "commands/run/told.h"

#include <cstdint>

namespace train_gpt {

std::string told_by_first(Communicator& world, std::string text) {
  auto size = static_cast<std::int64_t>(text.size());
  world.broadcast_host(&size, sizeof size, 0);
  text.resize(static_cast<std::size_t>(size));
  if (size > 0) world.broadcast_host(text.data(), size, 0);
  return text;
}

}  // namespace train_gpt

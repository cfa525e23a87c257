#include "commands/run/agreement.h"

#include <algorithm>

#include "commands/run/command_line.h"
#include "commands/run/file_identity.h"
#include "commands/run/packed.h"
#include "commands/run/told.h"
#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

std::vector<Seen> unpacked(std::string_view packed) {
  std::vector<Seen> seen;
  while (!packed.empty()) {
    std::string what = unpack(packed);
    seen.push_back({std::move(what), unpack(packed)});
  }
  return seen;
}

// The first difference between what `who` and rank 0 see.
std::string difference(const std::vector<Seen>& first, const std::vector<Seen>& other, const std::string& who) {
  for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    const Seen none{"nothing more", "nothing"};
    const Seen& one = i < first.size() ? first[i] : none;
    const Seen& two = i < other.size() ? other[i] : none;
    if (one.what == two.what && one.value == two.value) continue;
    const std::string what = i < first.size() ? one.what : two.what;
    return "ranks do not agree on " + what + ": rank 0 on host " + host_name() + " has " + one.value + ", " + who +
           " has " + (one.what == two.what ? two.value : two.what + " " + two.value);
  }
  return "";
}

}  // namespace

std::string disagreement(Communicator& world, const std::vector<Seen>& seen) {
  std::string mine;
  pack(mine, host_name());
  for (const Seen& one : seen) {
    pack(mine, one.what);
    pack(mine, one.value);
  }
  const auto all = world.gather_host(mine, 0);
  std::string told;
  for (std::size_t rank = 1; rank < all.size() && told.empty(); ++rank) {
    std::string_view packed(all[rank].data(), all[rank].size());
    const std::string host = unpack(packed);
    told = difference(seen, unpacked(packed), "rank " + std::to_string(rank) + " on host " + host);
  }
  return told_by_first(world, told);
}

std::vector<Seen> seen_of_start() {
  Seen program = seen_file("/proc/self/exe");
  program.what = "the program's build";
  return {program, {"the options", "'" + options_for_all(own_command_line()) + "'"}};
}

Seen seen_file(const std::string& path) {
  const FileIdentity file = identity_of(path);
  return {"the file " + path, std::to_string(file.bytes) + " bytes, checksum " + file.checksum};
}

}  // namespace train_gpt

#include "pipeline/schedule/lowered_csv.h"

#include <charconv>
#include <map>
#include <tuple>

#include "pipeline/schedule/channels.h"

namespace train_gpt {
namespace {

bool take_number(std::string_view& text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::string name_of(bool sends, bool forward, int stage, int micro_batch) {
  return std::to_string(stage) + (sends ? "SEND_" : "RECV_") + (forward ? "F" : "B") + std::to_string(micro_batch);
}

// A message: whether it is sent or received, its kind, its stage and its micro-batch.
using Key = std::tuple<bool, bool, int, int>;

// The messages that a rank's actions send and receive, with their place in its list.
std::map<Key, std::size_t> messages_of(const Schedule& schedule, const ChannelTable& table, int rank) {
  std::map<Key, std::size_t> messages;
  const std::vector<Action>& list = schedule.actions(rank);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const ChannelTable::Messages channels = table.messages(list[i]);
    const bool forward = list[i].op == Op::forward;
    // A pair takes its inputs before either action runs, and sends after both.
    const bool first = list[i].fused_with_next, second = i > 0 && list[i - 1].fused_with_next;
    if (channels.consumes >= 0) messages[{false, forward, list[i].stage, list[i].micro_batch}] = second ? i - 1 : i;
    if (channels.produces >= 0) messages[{true, forward, list[i].stage, list[i].micro_batch}] = first ? i + 1 : i;
  }
  return messages;
}

}  // namespace

std::optional<MessageCell> parse_message_cell(std::string_view text) {
  MessageCell cell;
  if (!take_number(text, cell.stage)) return std::nullopt;
  cell.sends = take_word(text, "SEND_");
  if (!cell.sends && !take_word(text, "RECV_")) return std::nullopt;
  cell.forward = take_word(text, "F");
  if (!cell.forward && !take_word(text, "B")) return std::nullopt;
  if (!take_number(text, cell.micro_batch) || !text.empty()) return std::nullopt;
  return cell;
}

bool is_sharding_cell(std::string_view text) {
  int stage = 0;
  return take_number(text, stage) && (text == "UNSHARD" || text == "RESHARD" || text == "REDUCE_GRAD");
}

std::optional<MessageTrouble> message_trouble(const Schedule& schedule,
                                              const std::vector<std::vector<MessageCell>>& cells) {
  const ChannelTable table(schedule.placement);
  for (std::size_t rank = 0; rank < cells.size(); ++rank) {
    std::map<Key, std::size_t> wanted = messages_of(schedule, table, static_cast<int>(rank));
    std::map<Key, std::size_t> found;
    for (std::size_t i = 0; i < cells[rank].size(); ++i) {
      const MessageCell& cell = cells[rank][i];
      const Key key{cell.sends, cell.forward, cell.stage, cell.micro_batch};
      const auto action = wanted.find(key);
      const auto trouble = [&](const std::string& what) { return MessageTrouble{rank, i, what}; };
      if (action == wanted.end()) return trouble("is a message that no action of this row needs");
      if (!found.emplace(key, i).second) return trouble("is there twice");
      if (cell.sends && cell.before <= action->second)
        return trouble("stands before the action that makes its message");
      if (!cell.sends && cell.before > action->second) return trouble("stands after the action that needs its message");
    }
    for (const auto& [key, position] : wanted) {
      if (found.contains(key)) continue;
      const auto& [sends, forward, stage, micro_batch] = key;
      return MessageTrouble{rank, std::nullopt,
                            "lacks " + name_of(sends, forward, stage, micro_batch) + ", which " +
                                to_string(schedule.lists[rank][position]) + " needs: a file has all messages or none"};
    }
  }
  return std::nullopt;
}

}  // namespace train_gpt

// The cells of PyTorch's lowered schedules beside actions: messages (2SEND_F0: stage 2 hands the output of micro-batch
// 0 on; 1RECV_B3: stage 1 gets the gradient of micro-batch 3) and what FSDP does with parameters (0UNSHARD, 0RESHARD,
// 0REDUCE_GRAD). Messages follow from the actions here, so such cells are compared with them and dropped.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {

struct MessageCell {
  bool sends = false;
  bool forward = false;
  int stage = 0;
  int micro_batch = 0;
  std::size_t before = 0;  // the number of its rank's actions that come before it
};

// Empty for any other cell.
std::optional<MessageCell> parse_message_cell(std::string_view cell);
bool is_sharding_cell(std::string_view cell);

// The fault in the message cells of a complete schedule: a cell that the actions do not need, one that occurs twice or
// on the wrong side of its action, or a missing one. `cells`: [rank]. `at`: rank and index of the cell; no index: it is
// missing.
struct MessageTrouble {
  std::size_t rank = 0;
  std::optional<std::size_t> cell;
  std::string what;
};
std::optional<MessageTrouble> message_trouble(const Schedule& schedule,
                                              const std::vector<std::vector<MessageCell>>& cells);

}  // namespace train_gpt

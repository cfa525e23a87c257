// An action, the entry of a rank's list: one operation on one micro-batch in one virtual stage.
//
// F is the forward of one micro-batch through one virtual stage, I the backward with respect to its input, W the
// backward with respect to its weights, B both (I, then W).
#pragma once

#include <cstdint>
#include <string>

namespace train_gpt {

enum class Op : std::uint8_t { forward, backward, backward_input, backward_weight };  // F, B, I, W

// The letter used in every text form: F, B, I or W.
char op_letter(Op op);

struct Action {
  Op op = Op::forward;
  bool fused_with_next = false;  // this action and the next one of the rank run as one (DualPipe's F&B pair)
  std::int32_t stage = 0;        // global virtual stage, 0 .. p*v-1 (bidirectional: 0 .. 2p-1, see Placement)
  std::int32_t micro_batch = 0;  // 0 .. m-1

  bool operator==(const Action&) const = default;
};

// "2F0": stage, operation, micro-batch, as in the CSV files of PyTorch's pipelining.
std::string to_string(const Action& action);

}  // namespace train_gpt

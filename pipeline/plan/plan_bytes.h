// The memory lines of a plan: what is allocated, in bytes.
#pragma once

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

// Names of the lines, by which the executor finds its memory.
namespace memory {
inline constexpr const char* parameters = "parameters";
inline constexpr const char* low_parameters = "parameters, bf16 copy";
inline constexpr const char* spare_parameters = "parameters, spare";
inline constexpr const char* gradients = "gradients";
inline constexpr const char* group_gradients = "gradients of one group";
inline constexpr const char* first_moment = "AdamW first moment";
inline constexpr const char* second_moment = "AdamW second moment";
inline constexpr const char* messages = "message buffers";
inline constexpr const char* tokens = "tokens and losses";
inline constexpr const char* scratch = "scratch";
inline constexpr const char* workspace = "kernel workspace";
inline constexpr const char* norms = "norms and scalars";
}  // namespace memory

// The line of a pool: "activations F..I" and so on, with the slots and their size.
std::string pool_name(const Pool& pool);

// Fills plan.memory from everything else in the plan.
void add_memory_lines(const PlanRequest& request, RankPlan& plan);

// "1.5 GiB", "412 MiB", "900 B".
std::string format_bytes(std::int64_t bytes);

}  // namespace train_gpt

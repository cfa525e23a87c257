#include "kernels/device.h"

namespace train_gpt {

std::int64_t element_size(Precision precision) { return precision == Precision::bf16 ? 2 : 4; }

}  // namespace train_gpt

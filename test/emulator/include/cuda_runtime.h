// Found before NVIDIA's header of the same name: first the real declarations, then what only nvcc supplies.
#pragma once

#include_next <cuda_runtime.h>

#include "../device_code.h"

// What device code and launches need beyond NVIDIA's headers. Included by the cuda_runtime.h shim.
#pragma once

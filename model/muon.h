// Muon (Jordan 2024): the layers' matrices follow their averaged gradient with its singular values brought near 1, so
// that every direction moves alike. For one matrix of gradient G and average M, b the momentum:
//
//   M = b M + (1 - b) G,  G' = b M + (1 - b) G                                (Nesterov)
//   X = G' / (|G'|_F + 1e-7)
//   five times:  A = X X^T,  X = 3.4445 X + (-4.7750 A + 2.0315 A A) X        (Newton-Schulz)
//   W = (1 - lr weight_decay) W - lr scale X
//
// A matrix with more rows than columns is treated as its transpose: A = X^T X and X = 3.4445 X + X (..), which are the
// same sums. q, k and v are three matrices. Products are those of the device, whose bits depend on shapes alone, and a
// matrix lives whole on one rank: the step needs no message and has the same bits over every layout.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/device.h"
#include "model/parameters.h"

namespace train_gpt {

// The factor of the update of a matrix (rows,columns).
enum class MuonScale : std::uint8_t {
  rms,      // 0.2 sqrt(max(rows, columns)): elements as large as AdamW's, at the same learning rate
  spectral  // sqrt(max(1, rows / columns)): for the largest singular value, with learning rates about .02
};

const char* to_string(MuonScale scale);

struct MuonConstants {
  float momentum = 0.95F;
  float weight_decay = 0;
  MuonScale scale = MuonScale::rms;
};

float muon_scale(MuonScale scale, std::int64_t rows, std::int64_t columns);

// Bytes of scratch for the step of one matrix, on a device of this precision.
std::int64_t muon_scratch_bytes(Precision precision, std::int64_t rows, std::int64_t columns);
// The same for the largest matrix that the arena's layout gives to Muon; 0: none.
std::int64_t muon_scratch_bytes(Precision precision, const ArenaLayout& layout);

// One matrix. parameters and average: at its place in the arenas. The average does not change: see
// Device::muon_average. scratch: muon_scratch_bytes of device memory, 256-byte aligned.
struct MuonMatrix {
  float* new_values = nullptr;
  void* low = nullptr;  // activation-precision copy, null for fp32
  const float* values = nullptr;
  AveragedGradient from;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
void muon_matrix_step(Device& device, const MuonMatrix& matrix, const MuonConstants& constants, void* scratch);
// X of the above (rows,columns), at activation precision: where the scratch begins.
void* muon_direction(Device& device, const MuonMatrix& matrix, void* scratch);

}  // namespace train_gpt

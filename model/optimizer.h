// Learning-rate schedules, AdamW and Muon over a rank's arena, the global gradient norm and the parameter hash.
// Everything that spans ranks is an array over the atoms of the whole model: each rank fills in the atoms that it owns,
// the caller combines the arrays, and one function turns the whole into a number. Sums follow the order of the atoms,
// so neither p, v, the partition nor the number of threads can change a bit.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/device.h"
#include "model/config.h"
#include "model/muon.h"
#include "model/parameters.h"

namespace train_gpt {

enum class LearningRateShape : std::uint8_t { constant, cosine, linear, wsd };

// "constant" "cosine" "linear" "wsd". Throws std::invalid_argument naming --lr-schedule and the known names.
LearningRateShape learning_rate_shape(const std::string& name);
const char* to_string(LearningRateShape shape);

// With w warm-up steps, n steps and k = min_lr_fraction, the rate of step s (from 0) is `peak` times
//
//   s < w      (s + 1) / w                              all shapes; the first step already trains
//   constant   1
//   cosine     k + (1 - k) (1 + cos(pi x)) / 2          x = (s - w) / (n - w)         (Loshchilov and Hutter 2017)
//   linear     1 - (1 - k) x                            x = (s - w) / (n - w)
//   wsd        1, then 1 - (1 - k) x over the last d    x = (s - (n - d)) / d         (Hu et al. 2024)
//
// x is at most 1: steps beyond n stay at k. The fraction k would be reached at step n, so the last step still trains
// when k = 0. A warm-up of n steps or more never ends: the rate rises to the end of the run.
struct LearningRate {
  LearningRateShape shape = LearningRateShape::cosine;
  double peak = 3e-4;
  std::int64_t steps = 0;         // n, of the whole run, also after a resume
  std::int64_t warmup_steps = 0;  // w
  double min_lr_fraction = 0.1;   // k
  std::int64_t decay_steps = -1;  // d of wsd, at most n - w; -1: a fifth of n, rounded; 0: no decay
};

// Throws std::invalid_argument naming the option, the value and its limits.
void check(const LearningRate& schedule);

// Finite and >= 0 for every step >= 0 of a schedule that passes check().
double learning_rate(const LearningRate& schedule, std::int64_t step);

// ---- gradient norm --------------------------------------------------------------------------------------------------

// For shards of a tied wte whose embedding and head both live on this rank: adds the head's gradient to the
// embedding's, once per step, before the norm.
void sum_tied_gradients(Device& device, const ArenaLayout& layout, float* gradients);

// Atoms of the tensors that this rank owns.
std::int64_t owned_atoms(const ArenaLayout& layout);

// sums[atom] = sum of squares of the gradient's atom, for the atoms of the tensors that this rank owns; others are
// unchanged. `sums`: host memory, atom_count(config) numbers. `scratch` and `host_scratch`: device and host memory,
// owned_atoms numbers each.
void gradient_squared_sums(Device& device, std::span<double> sums, double* scratch, double* host_scratch,
                           const ArenaLayout& layout, const float* gradients);

// The global L2 norm from the sums of all atoms, added up in canonical order in double.
double gradient_norm(std::span<const double> sums);

// The factor that brings the gradients' norm down to grad_clip; 1 if it is not larger, or if grad_clip is 0 (off).
float clip_factor(double norm, double grad_clip);

// ---- AdamW ----------------------------------------------------------------------------------------------------------

// Scalars of step `step` (from 0).
AdamWScalars adamw_scalars(const AdamWConstants& constants, double learning_rate, std::int64_t step, float clip);

// Arena bases of one rank. new_values may equal values. low: activation-precision copy, null for fp32.
struct OptimizerArenas {
  float* new_values = nullptr;
  void* low = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  const float* values = nullptr;
  const float* gradients = nullptr;
};

// One AdamW step for all tensors of the rank, but not for those matrices that Muon updates (model/muon.h).
// constants.weight_decay applies to tensors that decay. `scalars` is read from device memory. keep_moments: m and v do
// not change, see Device::adamw.
void adamw_step(Device& device, const OptimizerArenas& arenas, const ArenaLayout& layout, const AdamWScalars* scalars,
                const AdamWConstants& constants, bool keep_moments);
// The update of the moments that adamw_step(.., keep_moments = true) leaves out.
void adamw_moments_step(Device& device, const OptimizerArenas& arenas, const ArenaLayout& layout,
                        const AdamWScalars* scalars, const AdamWConstants& constants);

// ---- Muon -----------------------------------------------------------------------------------------------------------

// One step for the matrices that the layout gives to Muon (model/muon.h); their averages are in arenas.m. scratch:
// muon_scratch_bytes of device memory. keep_averages: averages do not change.
void muon_step(Device& device, const OptimizerArenas& arenas, const ArenaLayout& layout, const AdamWScalars* scalars,
               const MuonConstants& constants, bool keep_averages, void* scratch);
// The update of the averages that muon_step(.., keep_averages = true, ..) leaves out.
void muon_averages_step(Device& device, const OptimizerArenas& arenas, const ArenaLayout& layout,
                        const AdamWScalars* scalars, const MuonConstants& constants);

// ---- parameter hash -------------------------------------------------------------------------------------------------

// hashes[atom] = 64-bit hash of the bits of the atom's parameters (padding rows included), for the tensors that this
// rank owns, or (owned_only false) holds; others are unchanged. `hashes`: host memory, atom_count numbers.
void parameter_hashes(Device& device, std::span<std::uint64_t> hashes, const ArenaLayout& layout, const float* values,
                      bool owned_only = true);

// 16 hexadecimal digits from the hashes of all atoms, in canonical order. Equal if and only if all parameters are.
std::string combined_hash(std::span<const std::uint64_t> hashes);

}  // namespace train_gpt

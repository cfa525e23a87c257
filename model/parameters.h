// The parameters of a model in canonical order, and the part of them that one rank holds.
//
// Canonical order is that of llm.c's model files (wte wpe ln1w ln1b qkvw qkvb attprojw attprojb ln2w ln2b fcw fcb
// fcprojw fcprojb lnfw lnfb; untied models add headw (Vp, C) at the end), each stacked over layers. A "tensor" here is
// one layer's piece or, for wte and headw, the rows of one shard of the head, so that it belongs to exactly one unit
// (and wte's are read by exactly one other). Norms, hashes and optimizer shards cut every tensor into atoms of
// kAtomElements consecutive elements, and visit tensors in canonical order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "model/config.h"

namespace train_gpt {

// C hidden, Vp padded vocabulary, maxT longest sequence. Weights are (outputs, inputs).
enum class TensorKind : std::uint8_t {
  wte,       // (Vp,C) token embedding; rows >= V are padding and stay 0
  wpe,       // (maxT,C) position embedding
  ln1w,      // (C) from here to fcprojb: one per layer
  ln1b,      // (C)
  qkvw,      // (3C,C)
  qkvb,      // (3C)
  attprojw,  // (C,C)
  attprojb,  // (C)
  ln2w,      // (C)
  ln2b,      // (C)
  fcw,       // (4C,C)
  fcb,       // (4C)
  fcprojw,   // (C,4C)
  fcprojb,   // (C)
  lnfw,      // (C)
  lnfb,      // (C)
  headw,     // (Vp,C) classifier of untied models; rows >= V are padding and stay 0
};

struct TensorInfo {
  std::string name;  // "h3.qkvw", "wpe"; "wte" if the head has one shard, else "wte.0" ..
  TensorKind kind = TensorKind::wte;
  int unit = 0;  // the unit that owns it; wte: the embedding (a tied head reads it too)
  std::int64_t elements = 0;
  std::int64_t offset = 0;      // elements before it in a model file's body
  std::int64_t first_atom = 0;  // atoms before it, over the whole model
  bool decays = false;          // matrices and embeddings: weight decay applies
  int shard = 0;                // of wte and headw

  std::int64_t atoms() const { return (elements + kAtomElements - 1) / kAtomElements; }
};

// The optimizer of the layers' matrices; AdamW updates all other tensors.
enum class OptimizerKind : std::uint8_t { adamw, muon };
const char* to_string(OptimizerKind optimizer);

// Matrices of one shape that lie one after the other in a tensor.
struct Matrices {
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
// The matrices of a tensor that `optimizer` updates as matrices; q, k and v are three. Count 0: none, AdamW updates it.
Matrices optimizer_matrices(const ModelConfig& config, const TensorInfo& tensor, OptimizerKind optimizer);

// All tensors in canonical order.
std::vector<TensorInfo> model_tensors(const ModelConfig& config);

// Position of a tensor in model_tensors. `piece`: the layer for the kinds that every layer has, the shard for wte and
// headw; else it is ignored.
int tensor_index(const ModelConfig& config, TensorKind kind, std::int64_t piece = 0);
// Elements of a tensor before its padding rows.
std::int64_t elements_before_padding(const ModelConfig& config, const TensorInfo& tensor);

std::int64_t element_count(const ModelConfig& config);  // of all tensors, padding rows included
std::int64_t atom_count(const ModelConfig& config);     // of all tensors

// The places of a rank's tensors in its arena: one flat range of floats per kind of data (parameters, gradients, first
// and second moments), the same offsets in each kind; in canonical order, unless they are rearranged
// (pipeline/plan/sections.h). Matrices that Muon updates lie after all other tensors, since they have no second moment.
// Tensors start at multiples of 128 elements, so that they are 256-byte aligned in fp32 and in bf16 arenas; consecutive
// shards of one matrix lie without a gap. If a tied model's embedding and a shard of its head are both here, that shard
// of wte appears once as parameter and twice as gradient (see Entry::head_gradient).
struct ArenaLayout {
  struct Entry {
    int tensor = 0;           // index into model_tensors
    std::int64_t offset = 0;  // elements from the start of the arena
    // One rank of a pipeline owns each tensor: norms, hashes and files take it from there. False only for the wte of a
    // tied head whose embedding lives on another rank.
    bool owned = true;
    TensorInfo info;  // from model_tensors
    // Tied models: if the embedding lives here, too, the head's gradient of a shard of wte has a buffer of its own,
    // after the others in the gradient arena; -1: none.
    std::int64_t head_gradient = -1;
    Matrices matrices;  // count 0: AdamW updates it
  };
  std::vector<Entry> entries;  // canonical order
  OptimizerKind optimizer = OptimizerKind::adamw;
  std::int64_t elements = 0;           // of parameters, and of the first moment
  std::int64_t second_elements = 0;    // of the second moment
  std::int64_t gradient_elements = 0;  // with the head's own

  const Entry* find(int tensor) const;       // null if the rank does not hold it
  std::int64_t offset_of(int tensor) const;  // -1 if the rank does not hold it
};

// Elements that a tensor takes in an arena, with those that align the next one.
std::int64_t arena_elements(const TensorInfo& tensor);

// The range of shards [first, last) of wte in an arena that holds them all.
struct ElementRange {
  std::int64_t offset = 0;
  std::int64_t elements = 0;
};
ElementRange wte_range(const ModelConfig& config, const ArenaLayout& layout, int first, int last);

// `units`: one flag per unit, true if the rank holds it.
ArenaLayout arena_layout(const ModelConfig& config, const std::vector<bool>& units,
                         OptimizerKind optimizer = OptimizerKind::adamw);

// Deterministic initial values of one tensor, GPT-2's: N(0, 0.02), residual projections scaled by 1/sqrt(2 layers),
// biases 0, LayerNorm weights 1, padding rows 0. Depends on (seed, tensor) alone, never on p, v, the partition or
// the machine's math library.
void initialise(float* out, const ModelConfig& config, const TensorInfo& tensor, std::uint64_t seed);
// Elements [begin, begin + count) of these values, into out(count).
void initialise_range(float* out, const ModelConfig& config, const TensorInfo& tensor, std::uint64_t seed,
                      std::int64_t begin, std::int64_t count);
// Initialises all tensors of a rank in its arena on the device.
void initialise_arena(Device& device, float* values, const ModelConfig& config, const ArenaLayout& layout,
                      std::uint64_t seed);

}  // namespace train_gpt

// Head: final LayerNorm, scores, softmax cross-entropy, as a chain of K shards along the vocabulary that follow each
// other like layers, so that the head can be cut as the layers can.
//
// With X (N,C) the output of the LayerNorm, Y = X W^T the scores and dloss the gradient of one row's loss,
//
//   loss = log sum_j exp(Y_j) - Y_target             dY = (softmax(Y) - onehot) dloss
//   dX = dY W = (softmax(X W^T) W - W[target]) dloss  dW = dY^T X
//
// dX is attention whose keys and values are the vocabulary, so it is folded as flash attention folds its keys (Milakov
// and Gimelshein 2018, Dao et al. 2022), in the order of the shards:
//
//   F of shard k   Y = X W_k^T;  m' = max(m, rowmax Y);  E = exp(Y - m');  A = A exp(m - m') + E W_k;
//                  s = s exp(m - m') + rowsum E;  z = Y[target] where the target is in the shard.
//                  After the last one: loss = log s + m - z, dX = (A / s) dloss.
//   I of shard k   dX -= dloss W[target] where the target is in the shard. Shard 0 ends with LayerNorm's backward.
//   W of shard k   D = E exp(m'_k - m) dloss / s - onehot dloss;  dW_k += D^T X.
//
// One arithmetic for three forms. *Kept*: E, rounded once to activation precision, lives from F to W. *Recomputed*: W
// repeats Y and E; m'_k is kept. *Streamed*: a stage that holds all shards does F, I and W in its forward, chunk by
// chunk of the rows, so that (N,Vp) never exists; backward_input hands dx over. All run the same chunks of rows in the
// same order.
#pragma once

#include <span>
#include <vector>

#include "model/boundary.h"
#include "model/unit.h"

namespace train_gpt {

// X, m, s, z and A where they lie in a message or in a slot.
struct HeadState {
  void* normed = nullptr;          // X (N,C) activation precision; in generation (B,C)
  SoftmaxFold fold;                // m, s, z (N) and A (N,C); validation has no A
  void* logits = nullptr;          // generation: (B,logit_columns)
  std::int64_t logit_columns = 0;  // of the shards so far
};

struct HeadShard {
  VocabularyShard columns;
  Affine classifier;              // (width,C) without bias
  void* kept = nullptr;           // E (N,width), streamed: (chunk,width); null: it is not kept
  float* largest_then = nullptr;  // m'_k (N)
};

// The shards of one stage.
struct HeadUnit {
  UnitSizes sizes;
  std::span<const HeadShard> shards;
  bool first = false;  // shard 0 is here
  bool last = false;   // shard K-1 is here
  bool streamed = false;
  std::int64_t chunk = 0;  // rows

  Affine norm;              // of shard 0, as the next two
  const void* x = nullptr;  // (N,C)
  NormTensors norm_tensors;
  HeadState before;              // from the stage before, if that has the shards before these
  HeadState state;               // of this stage's fold
  float* scores = nullptr;       // Y (chunk, widest shard)
  void* exponentials = nullptr;  // E of a chunk if it is not kept; in fp32 the scores' buffer

  void* next_normed = nullptr;  // X once more, in the message that F sends on; null with shard K-1

  // For I: dX, m and s as they arrive from the next stage (with shard K-1: dX alone, from F) and as they are sent to
  // the stage before (null with shard 0).
  SoftmaxFold from_next, to_previous;
  float* gradient = nullptr;         // dX (N,C) on its way through this stage
  void* rounded_gradient = nullptr;  // dX (N,C) at activation precision for LayerNorm; in fp32 the same buffer
  void* dx = nullptr;                // (N,C) streamed form
  void* all_normed = nullptr;        // (N,C), with shard 0 in generation
  void* shard_logits = nullptr;      // (B, widest shard) in generation

  const std::int32_t* targets = nullptr;
  float* losses = nullptr;  // (N), shard K-1
  float dloss = 0;
};

// Binds the shards of a stage, from its unit `first_unit` on, for one action; fills `shards`, into which the unit
// points. dX and all that W needs lie at the same places in F, I and W of a micro-batch.
HeadUnit bind_head(const UnitSizes& sizes, const StageShape& shape, Pass pass, const StageSlots& slots,
                   const ParameterView& parameters, const UnitBuffers& memory, std::vector<HeadShard>& shards);

// Rows of one chunk. For a cpu 32 MiB of fp32 scores over the whole vocabulary, or a sixteenth of the rows if that is
// more. For a GPU 24 MiB of fp32 scores over one shard, which fit its L2 (40 MiB or more) with their exponentials, or a
// quarter of the rows if that is more, so that the gradient of the weights is added to four times at most.
std::int64_t head_chunk_rows(HeadChunks chunks, std::int64_t rows, std::int64_t Vp, std::int64_t shard_width);

// F with and without gradient.
void head_forward(Device& device, const HeadUnit& unit);
void head_validate(Device& device, const HeadUnit& unit);
// Scores of one position of each row into state.logits.
void head_logits(Device& device, const HeadUnit& unit, std::int64_t position);
// I. dx (N,C) with shard 0; else unused, since dX goes on in a message.
void backward_input(Device& device, const HeadUnit& unit, void* dx);
void backward_weight(Device& device, const HeadUnit& unit);

}  // namespace train_gpt

// Where virtual stages live: which rank holds which stage, and which stage follows which.
#pragma once

#include <vector>

namespace train_gpt {

// Where virtual stages live and how they are chained. All code reads this table: none computes s+1 or s mod p.
struct Placement {
  enum class Kind : std::uint8_t { loop, v_shape, bidirectional, table };  // table: anything else, read from a file

  struct VirtualStage {
    int rank = 0;               // owner
    int copy = 0;               // which parameter copy it computes with: 0, or 1 for the mirrored half of DualPipe
    int model_stage = 0;        // position in the model, 0 = holds the embedding .. depth()-1 = holds the head
    int previous = -1;          // virtual stage whose output is this one's input; -1: reads tokens
    int next = -1;              // virtual stage that takes this one's output; -1: computes the loss
    int first_micro_batch = 0;  // this stage takes micro-batches [first_micro_batch, last_micro_batch)
    int last_micro_batch = 0;
  };

  Kind kind = Kind::loop;
  int ranks = 1;   // p
  int chunks = 1;  // v: virtual stages per rank and parameter copy
  std::vector<VirtualStage> stages;

  // Stage s on rank s mod p.
  static Placement loop(int p, int v, int m);
  // v = 2: rank r holds stages r and 2p-1-r, so embedding and head meet on rank 0.
  static Placement v_shape(int p, int m);
  // Two parameter copies: stage s < p of copy 0 on rank s takes micro-batches 0..m/2-1; stage p+s of copy 1 holds the
  // same units as stage s, lives on rank p-1-s and takes m/2..m-1.
  static Placement bidirectional(int p, int m);

  // Any other table: stage s on rank rank_of_stage[s], one parameter copy. `chunks` is the largest number on one rank.
  static Placement from_table(const std::vector<int>& rank_of_stage, int p, int m);

  int depth() const;                           // model stages in one copy of the model: p*v
  std::vector<int> stages_of(int rank) const;  // virtual stages of a rank, in order of their number
};

}  // namespace train_gpt

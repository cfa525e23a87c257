// A pipeline schedule as data: who computes what, in which order. Nothing here knows time, MPI, models or GPUs; this
// header and everything named pipeline/schedule* and pipeline/simulat* depend on the standard library alone.
//
// Terms: p ranks form one pipeline; every rank holds v virtual stages ("chunks"); a training step feeds m micro-batches
// through all p*v virtual stages and back. F is the forward of one micro-batch through one virtual stage, I the
// backward with respect to its input, W the backward with respect to its weights, B the two in one go (I, then W).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// Where virtual stages live and how they are chained. Everyone reads this table: nobody computes s+1 or s mod p.
struct Placement {
  enum class Kind : std::uint8_t { loop, v_shape, bidirectional, table };  // table: anything else, read from a file

  struct VirtualStage {
    int rank = 0;               // owner
    int copy = 0;               // which parameter copy it computes with: 0, or 1 for the mirrored half of DualPipe
    int model_stage = 0;        // position in the model, 0 = holds the embedding .. depth()-1 = holds the head
    int previous = -1;          // virtual stage whose output is our input; -1: reads tokens
    int next = -1;              // virtual stage that takes our output; -1: computes the loss
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

  // Any other table: stage s on rank rank_of_stage[s], one parameter copy. Chunks is the largest number on one rank.
  static Placement from_table(const std::vector<int>& rank_of_stage, int p, int m);

  int depth() const;                           // model stages in one copy of the model: p*v
  std::vector<int> stages_of(int rank) const;  // virtual stages of a rank, in order of their number
};

// Appends to the list of one rank: schedule.rank(r).forward(stage, micro_batch).backward(stage, micro_batch).
class ListBuilder {
 public:
  explicit ListBuilder(std::vector<Action>& list) : list_(list) {}

  ListBuilder& forward(int stage, int micro_batch) { return add(Op::forward, stage, micro_batch); }
  ListBuilder& backward(int stage, int micro_batch) { return add(Op::backward, stage, micro_batch); }
  ListBuilder& backward_input(int stage, int micro_batch) { return add(Op::backward_input, stage, micro_batch); }
  ListBuilder& backward_weight(int stage, int micro_batch) { return add(Op::backward_weight, stage, micro_batch); }
  ListBuilder& add(Op op, int stage, int micro_batch);
  // The last action appended and the next one run as one.
  ListBuilder& fuse_with_next();

 private:
  std::vector<Action>& list_;
};

// One ordered list of actions per rank. Build with rank(r).forward(...); read with actions(r).
struct Schedule {
  Schedule() = default;
  // p empty lists (p and v as the placement says) for m micro-batches.
  Schedule(Placement where, int m);

  std::string name;       // the --schedule name, or the file it came from
  int ranks = 1;          // p
  int chunks = 1;         // v
  int micro_batches = 1;  // m
  Placement placement;
  std::vector<std::vector<Action>> lists;  // [rank]

  const std::vector<Action>& actions(int rank) const { return lists[static_cast<std::size_t>(rank)]; }
  ListBuilder rank(int r) { return ListBuilder(lists[static_cast<std::size_t>(r)]); }
};

// A channel is one ordered FIFO between two ranks: activations or gradients. Its message order is the producer's
// action order. One merged FIFO per rank pair is not enough (SCHEDULES: ZB-V, DualPipe, ...).
struct Channel {
  enum class Kind : std::uint8_t { activation, gradient };
  int source = 0;
  int destination = 0;
  Kind kind = Kind::activation;

  auto operator<=>(const Channel&) const = default;
};

}  // namespace train_gpt

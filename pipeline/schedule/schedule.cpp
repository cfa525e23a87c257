#include "pipeline/schedule/schedule.h"

#include <algorithm>
#include <utility>

#include "pipeline/schedule/list_builder.h"

namespace train_gpt {

char op_letter(Op op) { return "FBIW"[static_cast<int>(op)]; }

std::string to_string(const Action& action) {
  return std::to_string(action.stage) + op_letter(action.op) + std::to_string(action.micro_batch);
}

namespace {

// Stages first .. first+count-1 form one chain: a copy of the model, in model order.
void chain(std::vector<Placement::VirtualStage>& stages, int first, int count) {
  for (int s = 0; s < count; ++s) {
    Placement::VirtualStage& stage = stages[static_cast<std::size_t>(first) + static_cast<std::size_t>(s)];
    stage.model_stage = s;
    stage.previous = s > 0 ? first + s - 1 : -1;
    stage.next = s + 1 < count ? first + s + 1 : -1;
  }
}

// One copy of the model, in which every stage takes all m micro-batches.
Placement single_copy(Placement::Kind kind, const std::vector<int>& rank_of_stage, int p, int v, int m) {
  Placement placement;
  placement.kind = kind;
  placement.ranks = p;
  placement.chunks = v;
  placement.stages.resize(rank_of_stage.size());
  for (std::size_t s = 0; s < rank_of_stage.size(); ++s) {
    placement.stages[s].rank = rank_of_stage[s];
    placement.stages[s].last_micro_batch = m;
  }
  chain(placement.stages, 0, static_cast<int>(rank_of_stage.size()));
  return placement;
}

}  // namespace

Placement Placement::loop(int p, int v, int m) {
  std::vector<int> rank_of_stage(static_cast<std::size_t>(p) * v);
  for (std::size_t s = 0; s < rank_of_stage.size(); ++s) rank_of_stage[s] = static_cast<int>(s) % p;
  return single_copy(Kind::loop, rank_of_stage, p, v, m);
}

Placement Placement::v_shape(int p, int m) {
  std::vector<int> rank_of_stage(static_cast<std::size_t>(p) * 2);
  for (int r = 0; r < p; ++r) {
    rank_of_stage[static_cast<std::size_t>(r)] = r;
    rank_of_stage[static_cast<std::size_t>(2 * p - 1 - r)] = r;
  }
  return single_copy(Kind::v_shape, rank_of_stage, p, 2, m);
}

Placement Placement::bidirectional(int p, int m) {
  Placement placement;
  placement.kind = Kind::bidirectional;
  placement.ranks = p;
  placement.stages.resize(static_cast<std::size_t>(p) * 2);
  chain(placement.stages, 0, p);
  chain(placement.stages, p, p);
  for (int s = 0; s < p; ++s) {
    VirtualStage& down = placement.stages[static_cast<std::size_t>(s)];
    down.rank = s;
    down.first_micro_batch = 0;
    down.last_micro_batch = m / 2;
    VirtualStage& up = placement.stages[static_cast<std::size_t>(p) + static_cast<std::size_t>(s)];
    up.rank = p - 1 - s;
    up.copy = 1;
    up.first_micro_batch = m / 2;
    up.last_micro_batch = m;
  }
  return placement;
}

Placement Placement::from_table(const std::vector<int>& rank_of_stage, int p, int m) {
  std::vector<int> stages_on_rank(static_cast<std::size_t>(p));
  for (const int rank : rank_of_stage) ++stages_on_rank[static_cast<std::size_t>(rank)];
  return single_copy(Kind::table, rank_of_stage, p, *std::max_element(stages_on_rank.begin(), stages_on_rank.end()), m);
}

int Placement::depth() const {
  int deepest = -1;
  for (const VirtualStage& stage : stages) deepest = std::max(deepest, stage.model_stage);
  return deepest + 1;
}

std::vector<int> Placement::stages_of(int rank) const {
  std::vector<int> held;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].rank == rank) held.push_back(static_cast<int>(s));
  }
  return held;
}

ListBuilder& ListBuilder::add(Op op, int stage, int micro_batch) {
  list_.push_back({.op = op, .stage = stage, .micro_batch = micro_batch});
  return *this;
}

ListBuilder& ListBuilder::fuse_with_next() {
  list_.back().fused_with_next = true;
  return *this;
}

Schedule::Schedule(Placement where, int m)
    : ranks(where.ranks), chunks(where.chunks), micro_batches(m), placement(std::move(where)) {
  lists.resize(static_cast<std::size_t>(ranks));
}

}  // namespace train_gpt

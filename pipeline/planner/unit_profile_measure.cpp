// Measuring a profile: every kind of unit on its own, then messages.
#include <algorithm>
#include <chrono>
#include <memory>
#include <span>

#include "model/parameters.h"
#include "pipeline/planner/unit_profile.h"

namespace train_gpt {
namespace {

constexpr int kPasses = 3;
constexpr std::size_t kSpread = 3;  // median, least, most
constexpr std::size_t kRankNumbers = kUnitForms * kPasses * kSpread;

// Device memory that is released with its owner.
class Buffers {
 public:
  explicit Buffers(Device& device) : device_(device) {}
  ~Buffers() {
    for (void* block : blocks_) device_.release(block);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  void* take(std::int64_t bytes) {
    if (bytes <= 0) return nullptr;
    blocks_.push_back(device_.allocate(bytes));
    device_.zero(blocks_.back(), bytes);
    return blocks_.back();
  }
  float* take_floats(std::int64_t count) { return static_cast<float*>(take(count * std::int64_t{sizeof(float)})); }

 private:
  Device& device_;
  std::vector<void*> blocks_;
};

// Fills in numbers of the size of parameters and activations, since matrix products of zeros are faster on a GPU.
void fill(Device& device, float* out, std::int64_t count) {
  constexpr std::int64_t kChunk = 16384;
  std::vector<float> pattern(static_cast<std::size_t>(kChunk));
  std::uint32_t state = 1;
  for (float& value : pattern) {
    state = state * 1664525U + 1013904223U;
    value = (static_cast<float>(state >> 8) / 16777216.0F - 0.5F) * 0.1F;
  }
  for (std::int64_t done = 0; done < count; done += kChunk) {
    device.to_device(out + done, pattern.data(), std::min(kChunk, count - done) * std::int64_t{sizeof(float)});
  }
}

StageShape shape_of(UnitForm form, const ModelConfig& model, std::int64_t rows, std::int64_t seq_len) {
  const int head = first_head_unit(model);
  const int first = form == UnitForm::embedding    ? 0
                    : form == UnitForm::attention  ? 1
                    : form == UnitForm::mlp        ? 2
                    : form == UnitForm::head_shard ? head + measured_shard(model)
                                                   : head;
  StageShape shape;
  shape.model = model;
  shape.first_unit = first;
  shape.last_unit = form == UnitForm::head_streamed ? unit_count(model) : first + 1;
  shape.B = rows;
  shape.T = seq_len;
  shape.head = form == UnitForm::head_streamed ? HeadForm::streamed : HeadForm::stored;
  return shape;
}

ArenaLayout layout_of(const StageShape& shape) {
  std::vector<bool> held(static_cast<std::size_t>(unit_count(shape.model)), false);
  std::fill(held.begin() + shape.first_unit, held.begin() + shape.last_unit, true);
  return arena_layout(shape.model, held);
}

// One unit of a model as a stage of its own, with all of its buffers.
class UnitOnItsOwn {
 public:
  UnitOnItsOwn(Device& device, const ModelConfig& model, UnitForm form, std::int64_t rows, std::int64_t seq_len)
      : device_(device), buffers_(device) {
    StageShape shape = shape_of(form, model, rows, seq_len);
    shape.chunks = device.head_chunks();
    stage_ = std::make_unique<Stage>(device, shape);
    layout_ = layout_of(shape);
    take_parameters();
    take_slots(shape, rows * seq_len, model.hidden);
    workspace_bytes_ = device.workspace_bytes(rows, seq_len, model.hidden, model.heads, model.padded_vocab());
    device.use_workspace(buffers_.take(workspace_bytes_), workspace_bytes_);
  }
  ~UnitOnItsOwn() { device_.use_workspace(nullptr, 0); }
  UnitOnItsOwn(const UnitOnItsOwn&) = delete;
  UnitOnItsOwn& operator=(const UnitOnItsOwn&) = delete;

  // Milliseconds of F, I and W, appended to samples[pass].
  void run(std::array<std::vector<double>, kPasses>& samples) {
    const Device::Mark begin = device_.mark();
    stage_->forward(slots_, view_, ForwardUse::training);
    const Device::Mark forward = device_.mark();
    stage_->backward_input(slots_, view_);
    const Device::Mark input = device_.mark();
    stage_->backward_weight(slots_, view_);
    const Device::Mark weight = device_.mark();
    device_.synchronize();
    samples[0].push_back(device_.time_ms(forward) - device_.time_ms(begin));
    samples[1].push_back(device_.time_ms(input) - device_.time_ms(forward));
    samples[2].push_back(device_.time_ms(weight) - device_.time_ms(input));
  }

 private:
  void take_parameters() {
    float* parameters = buffers_.take_floats(layout_.elements);
    fill(device_, parameters, layout_.elements);
    view_.layout = &layout_;
    view_.values = parameters;
    view_.low = parameters;
    view_.gradients = buffers_.take_floats(layout_.gradient_elements);
    if (device_.precision() == Precision::fp32) return;
    void* low = buffers_.take(layout_.elements * element_size(device_.precision()));
    device_.from_float(low, parameters, layout_.elements);
    view_.low = low;
  }

  void take_slots(const StageShape& shape, std::int64_t tokens, std::int64_t hidden) {
    const Precision precision = device_.precision();
    const StageBytes bytes = stage_bytes(shape, precision);
    const MessageBytes before = message_bytes(shape, precision, shape.first_unit);
    const MessageBytes after = message_bytes(shape, precision, shape.last_unit);
    const std::int64_t matrix = tokens * hidden * element_size(precision);
    // A message begins with a matrix at activation precision; its sums and maxima must not be zero either.
    float* values = buffers_.take_floats(tokens * hidden);
    fill(device_, values, tokens * hidden);
    const auto filled = [&](std::int64_t message) {
      const std::int64_t size = std::max(matrix, message);
      void* buffer = buffers_.take(size);
      fill(device_, static_cast<float*>(buffer), size / std::int64_t{sizeof(float)});
      device_.from_float(buffer, values, tokens * hidden);
      return buffer;
    };
    slots_.input = filled(before.most_forward());
    slots_.output_gradient = filled(after.backward);
    slots_.output = buffers_.take(std::max(matrix, after.most_forward()));
    slots_.input_gradient = buffers_.take(std::max(matrix, before.backward));
    slots_.dloss = 1e-3F;
    slots_.forward_to_input = buffers_.take(bytes.forward_to_input);
    slots_.forward_to_weight = buffers_.take(bytes.forward_to_weight);
    slots_.input_to_weight = buffers_.take(bytes.input_to_weight);
    slots_.scratch = buffers_.take(bytes.scratch);
    constexpr std::int64_t kId = sizeof(std::int32_t);
    slots_.tokens = static_cast<std::int32_t*>(buffers_.take(tokens * kId));
    slots_.targets = static_cast<std::int32_t*>(buffers_.take(tokens * kId));
    slots_.losses = buffers_.take_floats(tokens);
  }

  Device& device_;
  Buffers buffers_;
  ArenaLayout layout_;
  std::unique_ptr<Stage> stage_;
  ParameterView view_;
  StageSlots slots_;
  std::int64_t workspace_bytes_ = 0;
};

// The number of timed runs, equal on all ranks so that they compete until the last one ends: as many as the slowest
// rank has time for. 0: the first run took so long that it has to suffice.
int agreed_runs(Communicator& world, double first_ms, const ProfileEffort& effort) {
  std::vector<double> all(static_cast<std::size_t>(world.size()), 0.0);
  all[static_cast<std::size_t>(world.rank())] = first_ms;
  world.one_hot_sum(all);
  const double slowest = std::max(1e-6, *std::max_element(all.begin(), all.end()));
  if (slowest > 4 * effort.most_ms) return 0;
  return std::clamp(static_cast<int>(effort.most_ms / slowest), 1, effort.most_runs);
}

UnitTimes measure_unit(Device& device, Communicator& world, const ModelConfig& model, UnitForm form, std::int64_t rows,
                       std::int64_t seq_len, const ProfileEffort& effort) {
  UnitOnItsOwn unit(device, model, form, rows, seq_len);
  world.barrier();
  std::array<std::vector<double>, kPasses> first;
  unit.run(first);
  const int runs = agreed_runs(world, first[0][0] + first[1][0] + first[2][0], effort);
  std::array<std::vector<double>, kPasses> samples;
  for (int i = 0; i < runs; ++i) unit.run(samples);
  if (runs == 0) samples = first;
  return {spread_of(samples[0]), spread_of(samples[1]), spread_of(samples[2])};
}

void write(std::span<double> numbers, const RankProfile& rank) {
  std::size_t at = 0;
  for (const UnitTimes& times : rank) {
    for (const Spread& spread : {times.forward, times.input, times.weight}) {
      numbers[at++] = spread.median;
      numbers[at++] = spread.least;
      numbers[at++] = spread.most;
    }
  }
}

// With several replicas each number is that of the slowest.
RankProfile read(std::span<const double> numbers, int rank, int pipeline_ranks) {
  std::array<double, kRankNumbers> slowest{};
  for (std::size_t first = static_cast<std::size_t>(rank) * kRankNumbers; first < numbers.size();
       first += static_cast<std::size_t>(pipeline_ranks) * kRankNumbers) {
    for (std::size_t i = 0; i < kRankNumbers; ++i) slowest[i] = std::max(slowest[i], numbers[first + i]);
  }
  RankProfile profile;
  std::size_t at = 0;
  for (UnitTimes& times : profile) {
    for (Spread* spread : {&times.forward, &times.input, &times.weight}) {
      *spread = {slowest[at], slowest[at + 1], slowest[at + 2]};
      at += kSpread;
    }
  }
  return profile;
}

double steady_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Round trips over link r, between the ranks r and r+1 of a pipeline; links that share no rank are measured together.
// Channel 2r leads up, 2r+1 down; the last rank has a link to rank 0, unless that is its only neighbour.
class PingPong {
 public:
  PingPong(Device& device, Communicator& pipeline, std::int64_t most_bytes)
      : pipeline_(pipeline),
        ranks_(pipeline.size()),
        links_(ranks_ == 2 ? 1 : ranks_),
        buffers_(device),
        out_(buffers_.take(most_bytes)),
        in_(buffers_.take(most_bytes)) {
    std::vector<Communicator::ChannelEnds> ends;
    for (int link = 0; link < links_; ++link) {
      const int next = (link + 1) % ranks_;
      const int slots = pipeline.rank() == link || pipeline.rank() == next ? 1 : 0;
      ends.push_back({link, next, most_bytes, slots});
      ends.push_back({next, link, most_bytes, slots});
    }
    pipeline.open_channels(ends);
    device.synchronize();
  }

  // Milliseconds of one way over the link of this rank's number; 0 if there is none.
  Spread measure(std::int64_t bytes, int runs) {
    Spread own;
    for (int round = 0; round < 3; ++round) {
      pipeline_.barrier();
      const Spread found = measure_round(round, bytes, runs);
      if (is_in(pipeline_.rank(), round)) own = found;
    }
    return own;
  }

 private:
  // Even links, odd links, and the way back of an odd number of ranks.
  bool is_in(int link, int round) const {
    if (link >= links_) return false;
    const bool alone = link == ranks_ - 1 && ranks_ % 2 == 1;
    return round == (alone ? 2 : link % 2);
  }
  Spread measure_round(int round, std::int64_t bytes, int runs) {
    const int rank = pipeline_.rank(), before = (rank + ranks_ - 1) % ranks_;
    const bool asks = is_in(rank, round), answers = !asks && is_in(before, round);
    std::vector<double> samples;
    for (int i = 0; i <= runs; ++i) {
      const double begin = steady_ms();
      if (asks) {
        send(2 * rank, bytes);
        receive(2 * rank + 1, bytes);
      } else if (answers) {
        receive(2 * before, bytes);
        send(2 * before + 1, bytes);
      }
      if (i > 0) samples.push_back(asks ? (steady_ms() - begin) / 2 : 0);
    }
    return spread_of(samples);
  }
  void send(int channel, std::int64_t bytes) { finish(pipeline_.send(channel, out_, bytes)); }
  void receive(int channel, std::int64_t bytes) { finish(pipeline_.receive(channel, in_, bytes)); }
  void finish(Ticket ticket) {
    wait_until([&] {
      pipeline_.progress();
      return pipeline_.done(ticket);
    });
  }

  Communicator& pipeline_;
  int ranks_, links_;
  Buffers buffers_;
  void* out_;
  void* in_;
};

std::vector<std::int64_t> message_sizes(std::int64_t boundary) {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t bytes : {std::int64_t{256}, std::int64_t{4096}, std::int64_t{65536}, boundary / 4}) {
    if (bytes < boundary && (sizes.empty() || bytes > sizes.back())) sizes.push_back(bytes);
  }
  sizes.push_back(boundary);
  return sizes;
}

struct Messages {
  std::vector<MessageTime> messages;
  std::vector<LinkTime> links;
};

Messages measure_messages(Device& device, Communicator& world, int pipeline_ranks, std::int64_t boundary, int runs) {
  if (pipeline_ranks < 2) return {};
  const auto pipeline = world.split(world.rank() / pipeline_ranks, world.rank());
  PingPong pairs(device, *pipeline, boundary);
  const auto ranks = static_cast<std::size_t>(world.size()), p = static_cast<std::size_t>(pipeline_ranks);
  Messages result;
  result.links.resize(p == 2 ? 1 : p);
  std::vector<double> shortest(result.links.size());  // [link], ms
  for (const std::int64_t bytes : message_sizes(boundary)) {
    world.barrier();
    const Spread mine = pairs.measure(bytes, runs);
    std::vector<double> all(3 * ranks, 0.0);
    const auto r = static_cast<std::size_t>(world.rank());
    all[r] = mine.median;
    all[ranks + r] = mine.least;
    all[2 * ranks + r] = mine.most;
    world.one_hot_sum(all);
    std::array<std::vector<double>, 3> of_links;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] > 0) of_links[i / ranks].push_back(all[i]);
    }
    for (std::size_t link = 0; link < result.links.size(); ++link) {
      double ms = 0;
      for (std::size_t rank = link; rank < ranks; rank += p) ms = std::max(ms, all[rank]);
      if (result.messages.empty()) shortest[link] = ms;
      const double transfer = ms - shortest[link];
      result.links[link] = {shortest[link], transfer > 0 ? static_cast<double>(bytes) / (transfer * 1e6) : 0};
    }
    result.messages.push_back(
        {bytes, {spread_of(of_links[0]).median, spread_of(of_links[1]).least, spread_of(of_links[2]).most}});
  }
  return result;
}

}  // namespace

ProfileEffort ProfileEffort::thorough() { return {.most_runs = 15, .most_ms = 2000, .message_runs = 30}; }

std::int64_t largest_unit_bytes(const ModelConfig& model, std::int64_t rows, std::int64_t seq_len,
                                Precision precision) {
  std::int64_t largest = 0;
  for (int form = 0; form < kUnitForms; ++form) {
    const StageShape shape = shape_of(static_cast<UnitForm>(form), model, rows, seq_len);
    const ArenaLayout layout = layout_of(shape);
    const StageBytes bytes = stage_bytes(shape, precision);
    const std::int64_t parameters = (layout.elements + layout.gradient_elements) * std::int64_t{sizeof(float)};
    const MessageBytes before = message_bytes(shape, precision, shape.first_unit);
    const MessageBytes after = message_bytes(shape, precision, shape.last_unit);
    const std::int64_t messages = before.most_forward() + before.backward + after.most_forward() + after.backward;
    largest = std::max(largest, parameters + messages + bytes.forward_to_input + bytes.forward_to_weight +
                                    bytes.input_to_weight + bytes.scratch);
  }
  return largest;
}

Profile measure_profile(Device& device, Communicator& world, int pipeline_ranks, const ModelConfig& model,
                        std::int64_t rows, std::int64_t seq_len, const ProfileEffort& effort) {
  RankProfile mine;
  for (int form = 0; form < kUnitForms; ++form) {
    mine[static_cast<std::size_t>(form)] =
        measure_unit(device, world, model, static_cast<UnitForm>(form), rows, seq_len, effort);
  }
  std::vector<double> numbers(static_cast<std::size_t>(world.size()) * kRankNumbers, 0.0);
  write(std::span<double>(numbers).subspan(static_cast<std::size_t>(world.rank()) * kRankNumbers, kRankNumbers), mine);
  world.one_hot_sum(numbers);
  Profile profile;
  profile.device = device.describe();
  profile.sizes = profile_sizes(model, rows, seq_len, device.precision());
  for (int r = 0; r < pipeline_ranks; ++r) profile.ranks.push_back(read(numbers, r, pipeline_ranks));
  Messages messages =
      measure_messages(device, world, pipeline_ranks, profile.sizes.message_bytes(), effort.message_runs);
  profile.messages = std::move(messages.messages);
  profile.links = std::move(messages.links);
  return profile;
}

}  // namespace train_gpt

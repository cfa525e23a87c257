// Costs on this machine: milliseconds of every kind of unit, measured on the real device with the real sizes
// and on all ranks at once (cores and memory are shared), and of messages between neighbouring ranks. A profile is all
// that partition, schedule and prediction need to know about a machine; as JSON it serves to plan elsewhere.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/device.h"
#include "model/config.h"
#include "model/stage.h"

namespace train_gpt {

// Units of one kind cost the same. The head has three forms: the whole head, streamed; its first shard, which has the
// LayerNorm; and any other shard. Single shards keep their exponentials.
enum class UnitForm : std::uint8_t { embedding, attention, mlp, head_streamed, head_first, head_shard };
inline constexpr int kUnitForms = 6;
const char* to_string(UnitForm form);
// The shard that head_shard measures: neither the first nor the last, if there is another.
int measured_shard(const ModelConfig& model);

// Milliseconds over the timed runs.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
};
Spread spread_of(std::vector<double> samples);

// Times of one micro-batch.
struct UnitTimes {
  Spread forward;  // F
  Spread input;    // I
  Spread weight;   // W
};
using RankProfile = std::array<UnitTimes, kUnitForms>;  // by UnitForm

struct MessageTime {
  std::int64_t bytes = 0;
  Spread one_way;  // half a round trip between neighbouring ranks, pairs of ranks at the same time
};

// Between the ranks r and r+1 of a pipeline, the mean of both directions; the slowest replica counts.
struct LinkTime {
  double latency = 0;    // ms, of a message of 256 bytes
  double bandwidth = 0;  // GB/s (10^9 bytes); 0: messages of these sizes are too short to tell
};

// The settings on which the times depend; not the number of layers.
struct ProfileSizes {
  std::int64_t heads = 0;
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::int64_t micro_batch_size = 0;  // b, rows
  std::int64_t seq_len = 0;           // T
  Precision precision = Precision::fp32;

  std::int64_t message_bytes() const { return micro_batch_size * seq_len * hidden * element_size(precision); }
  bool operator==(const ProfileSizes&) const = default;
};
ProfileSizes profile_sizes(const ModelConfig& model, std::int64_t rows, std::int64_t seq_len, Precision precision);

struct Profile {
  std::string device;  // as it describes itself
  ProfileSizes sizes;
  std::vector<RankProfile> ranks;     // of one pipeline; the slowest replica counts
  std::vector<MessageTime> messages;  // ascending bytes; empty if one rank is the whole pipeline
  // Link r of p-1, or of p if the last one leads back to rank 0 (p > 2). Empty: all are like `messages`.
  std::vector<LinkTime> links;
};

struct ProfileEffort {
  int most_runs = 3;                // timed per unit and pass, after one that warms up
  double most_ms = 200;             // of timed runs per form, but at least one run
  int message_runs = 5;             // round trips per size
  static ProfileEffort thorough();  // for a profile to be kept
};

// The memory that measure_profile needs at a time: parameters, gradients and buffers of the largest unit.
std::int64_t largest_unit_bytes(const ModelConfig& model, std::int64_t rows, std::int64_t seq_len, Precision precision);

// Collective over `world`, whose ranks form pipelines of `pipeline_ranks`. Allocates and releases its own memory, and
// changes no state. All ranks get the same profile.
Profile measure_profile(Device& device, Communicator& world, int pipeline_ranks, const ModelConfig& model,
                        std::int64_t rows, std::int64_t seq_len, const ProfileEffort& effort);

// Milliseconds of an empty message, and GB/s (10^9 bytes) of long ones; 0 if nothing was measured.
double message_latency(const Profile& profile);
double message_bandwidth(const Profile& profile);
// True if one link takes more than twice as long as another; a single link varies by up to that much.
bool links_differ(const Profile& profile);

// Throws std::runtime_error naming the file.
void save_profile(const Profile& profile, const std::string& path);
// Throws std::invalid_argument naming --profile, the file and what is wrong with it.
Profile load_profile(const std::string& path);
// Throws std::invalid_argument naming file and size unless the profile was measured with these sizes.
void check_profile(const Profile& profile, const std::string& path, const ProfileSizes& wanted);

// For people: medians and spread per form, messages per size.
std::string profile_table(const Profile& profile);

}  // namespace train_gpt

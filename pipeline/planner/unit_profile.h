// Costs on this machine: milliseconds of every kind of unit, measured on the real device with the real sizes
// and on all ranks at once (cores and memory are shared), and of messages between neighbouring ranks. A profile is all
// that partition, schedule and prediction need to know about a machine; saved as JSON it plans for it from elsewhere.
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

// Units of one kind cost the same. The head has three forms: the whole of it, streamed; its first shard, which has the
// LayerNorm; and another shard. The exponentials of single shards are kept.
enum class UnitForm : std::uint8_t { embedding, attention, mlp, head_streamed, head_first, head_shard };
inline constexpr int kUnitForms = 6;
const char* to_string(UnitForm form);
// The shard that head_shard measures: one that is neither the first nor the last, where there is one.
int measured_shard(const ModelConfig& model);

// Milliseconds over the runs that were timed.
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
  Spread one_way;  // half a round trip between neighbouring ranks, all pairs at once
};

// The settings that the times depend on. The number of layers is not one of them.
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
  std::vector<RankProfile> ranks;     // of one pipeline; of replicas the slower
  std::vector<MessageTime> messages;  // ascending bytes; empty if one rank is the whole pipeline
};

struct ProfileEffort {
  int most_runs = 3;                // timed per unit and pass, after one that warms up
  double most_ms = 200;             // of timed runs per form; what takes longer runs at least once
  int message_runs = 5;             // round trips per size
  static ProfileEffort thorough();  // for a profile that is kept
};

// The least memory that measure_profile needs at a time: parameters, gradients and buffers of the largest unit.
std::int64_t largest_unit_bytes(const ModelConfig& model, std::int64_t rows, std::int64_t seq_len, Precision precision);

// Collective over `world`, whose ranks form pipelines of `pipeline_ranks`. Allocates and releases its own memory, and
// leaves no trace. All ranks get the same profile.
Profile measure_profile(Device& device, Communicator& world, int pipeline_ranks, const ModelConfig& model,
                        std::int64_t rows, std::int64_t seq_len, const ProfileEffort& effort);

// Milliseconds of an empty message, and GB/s (10^9 bytes) of long ones; 0 where nothing was measured.
double message_latency(const Profile& profile);
double message_bandwidth(const Profile& profile);

// Throws std::runtime_error naming the file.
void save_profile(const Profile& profile, const std::string& path);
// Throws std::invalid_argument naming --profile, the file and what is wrong with it.
Profile load_profile(const std::string& path);
// Throws std::invalid_argument naming file and size unless the profile was measured with these sizes.
void check_profile(const Profile& profile, const std::string& path, const ProfileSizes& wanted);

// For people: medians and spread per form, messages per size.
std::string profile_table(const Profile& profile);

}  // namespace train_gpt

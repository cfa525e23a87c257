#include "kernels/injected_delays.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <sstream>
#include <stdexcept>

#include "kernels/forwarding_communicator.h"

namespace train_gpt {
namespace {

using Clock = std::chrono::steady_clock;

double number(const std::string& text, const std::string& part) {
  std::size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || text.empty() || !(value >= 0)) {
    throw std::invalid_argument("--inject-delay: '" + part + "' needs a number >= 0 after the =");
  }
  return value;
}

Clock::duration milliseconds(double ms) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
}

class DelayedCommunicator final : public ForwardingCommunicator {
 public:
  DelayedCommunicator(std::unique_ptr<Communicator> inner, const DelaySpec& spec)
      : ForwardingCommunicator(std::move(inner)),
        spec_(spec),
        random_(spec.seed * 1000003 + static_cast<std::uint64_t>(rank())) {
    this->inner().set_idle_hook([this] {
      release_due();
      idle();
    });
  }

  void open_channels(std::span<const ChannelEnds> channels) override {
    links_.assign(channels.size(), {});
    for (std::size_t c = 0; spec_.link && c < channels.size(); ++c) {
      links_[c] = spec_.link(channels[c].source, channels[c].destination, size());
    }
    inner().open_channels(channels);
  }
  void open_collectives(std::int64_t most_elements) override { inner().open_collectives(most_elements); }

  Ticket send(int channel, const void* data, std::int64_t bytes) override {
    const DelaySpec::Link& link = links_[static_cast<std::size_t>(channel)];
    const auto at_rate = [&](double rate) { return rate > 0 ? static_cast<double>(bytes) / (rate * 1e6) : 0; };
    const double transfer = std::max(at_rate(spec_.bandwidth), at_rate(link.bandwidth));
    Clock::time_point& channel_free = channel_free_[channel];
    channel_free = std::max(channel_free, Clock::now()) + milliseconds(transfer);
    const double wait = spec_.latency + link.latency + std::uniform_real_distribution<>(0, spec_.message)(random_);
    return hold(channel, {.due = channel_free + milliseconds(wait), .sent = data, .bytes = bytes});
  }
  Ticket receive(int channel, void* data, std::int64_t bytes) override {
    if (spec_.receive <= 0) return inner().receive(channel, data, bytes);
    const double wait = std::uniform_real_distribution<>(0, spec_.receive)(random_);
    return hold(channel, {.due = Clock::now() + milliseconds(wait), .received = data, .bytes = bytes});
  }

  bool done(Ticket ticket) override {
    release_due();
    if (ticket >= 0) return inner().done(ticket);
    for (const auto& [channel, queue] : waiting_) {
      for (const Held& message : queue) {
        if (message.ticket == ticket) return false;
      }
    }
    const auto found = released_.find(ticket);
    if (found == released_.end()) return true;
    if (!inner().done(found->second)) return false;
    released_.erase(found);
    return true;
  }
  void await(Ticket ticket) override {
    wait_until([&] {
      progress();
      if (done(ticket)) return true;
      idle();
      return false;
    });
  }
  void catch_up() override { inner().catch_up(); }
  void progress() override {
    release_due();
    inner().progress();
  }

  Ticket all_reduce(float* data, std::int64_t count) override { return inner().all_reduce(data, count); }
  Ticket reduce_scatter(float* data, std::span<const std::int64_t> cuts) override {
    return inner().reduce_scatter(data, cuts);
  }
  Ticket all_gather(float* data, std::span<const std::int64_t> cuts) override { return inner().all_gather(data, cuts); }
  Ticket start_one_hot_sum(std::span<double> data) override { return inner().start_one_hot_sum(data); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<DelayedCommunicator>(inner().split(color, key), spec_);
  }

 private:
  struct Held {
    Clock::time_point due;
    const void* sent = nullptr;  // one of the two
    void* received = nullptr;
    std::int64_t bytes = 0;
    Ticket ticket = 0;
  };

  Ticket hold(int channel, Held message) {
    const Ticket ticket = message.ticket = -(++held_);  // negative: ours
    waiting_[channel].push_back(message);
    release_due();
    return ticket;
  }

  // Channels stay in order: a message waits for those before it.
  void release_due() {
    const auto now = Clock::now();
    for (auto& [channel, queue] : waiting_) {
      while (!queue.empty() && queue.front().due <= now) {
        const Held message = queue.front();
        queue.pop_front();
        released_[message.ticket] = message.received != nullptr
                                        ? inner().receive(channel, message.received, message.bytes)
                                        : inner().send(channel, message.sent, message.bytes);
      }
    }
  }

  std::vector<DelaySpec::Link> links_;  // [channel]
  DelaySpec spec_;
  std::mt19937_64 random_;
  Ticket held_ = 0;
  std::map<int, std::deque<Held>> waiting_;        // by channel
  std::map<int, Clock::time_point> channel_free_;  // by channel: when the message before has left
  std::map<Ticket, Ticket> released_;              // ours -> inner
};

}  // namespace

DelaySpec parse_delays(const std::string& text) {
  DelaySpec spec;
  std::stringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (key == "message") {
      spec.message = number(value, part);
    } else if (key == "receive") {
      spec.receive = number(value, part);
    } else if (key == "action") {
      spec.action = number(value, part);
    } else if (key == "step") {
      spec.step = number(value, part);
    } else if (key == "latency") {
      spec.latency = number(value, part);
    } else if (key == "bandwidth") {
      spec.bandwidth = number(value, part);
    } else if (key == "rank") {
      spec.rank = static_cast<int>(number(value, part));
    } else if (key == "seed") {
      spec.seed = static_cast<std::uint64_t>(number(value, part));
    } else {
      throw std::invalid_argument("--inject-delay: '" + part +
                                  "' is none of message=MS, receive=MS, action=MS, step=MS, latency=MS, bandwidth=GBS, "
                                  "rank=R, seed=N (comma-separated)");
    }
  }
  return spec;
}

std::unique_ptr<Communicator> inject_delays(std::unique_ptr<Communicator> inner, const DelaySpec& spec) {
  const bool delays_messages =
      spec.message > 0 || spec.receive > 0 || spec.latency > 0 || spec.bandwidth > 0 || spec.link != nullptr;
  if (!delays_messages || (spec.rank >= 0 && spec.rank != inner->rank())) return inner;
  return std::make_unique<DelayedCommunicator>(std::move(inner), spec);
}

}  // namespace train_gpt

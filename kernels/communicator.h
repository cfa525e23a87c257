// Communicator: the data flow between ranks. Point-to-point messages travel on channels (ordered FIFOs, see
// pipeline/schedule/schedule.h); collectives serve gradients, norms and plans. Implementations: MPI (cpu device), NCCL
// (cuda device), local (ranks are threads of one process: tests, ThreadSanitizer).
//
// No call blocks inside a library: waiting means polling and calling progress() (wait_until below), so that a waiting
// rank leaves its core to the others; a computing rank keeps its messages moving by calling progress() from the
// device's progress hook. Only the compute thread calls a communicator.
//
// Errors: std::runtime_error naming the operation, the peer and the library's text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace train_gpt {

// Handle of one operation in flight. 0 is "nothing": always done.
using Ticket = std::int64_t;

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Channels ------------------------------------------------------------------------------------------------------
  // Names the channels that this communicator will carry: the same ends, in the same order, on every rank (collective).
  // After this, channel numbers are indices into the list. Allocates everything that messages need besides the caller's
  // buffers.
  struct ChannelEnds {
    int source = 0;
    int destination = 0;
    std::int64_t bytes = 0;  // of the largest message
    int slots = 0;           // messages in flight at once at this rank's end; 0: neither end is this rank's
  };
  virtual void open_channels(std::span<const ChannelEnds> channels) = 0;
  // Announces that all_reduce, reduce_scatter or all_gather will be used, one at a time, on at most `most_elements`,
  // and allocates what they need (collective).
  virtual void open_collectives(std::int64_t /*most_elements*/) {}

  // Starts sending `bytes` bytes from `data` on a channel of which this rank is the source, after everything that is
  // already enqueued on the device's compute stream. Leave `data` unchanged until the ticket is done.
  virtual Ticket send(int channel, const void* data, std::int64_t bytes) = 0;
  // Starts receiving the channel's next message (exactly `bytes` bytes; anything else is an error, never a short read),
  // after everything that is already enqueued on the device's compute stream (which may still read the buffer).
  virtual Ticket receive(int channel, void* data, std::int64_t bytes) = 0;

  // True if the operation is complete for the host. May be asked again after completion.
  virtual bool done(Ticket ticket) = 0;
  // Lets the device compute further only after the operation: the host waits (cpu), or the compute stream does (cuda).
  virtual void await(Ticket ticket) = 0;
  // The host waits, calling the idle hook, until the compute stream has passed every await() so far. Nothing to do
  // where await() itself waits on the host.
  virtual void catch_up() {}
  // Called again and again while the host waits in await(): the hook may progress other communicators, and may throw
  // when the wait has lasted too long.
  void set_idle_hook(std::function<void()> hook) { idle_hook_ = std::move(hook); }
  // Waits until `poll` returns true, as await() does for one ticket.
  void await_until(const std::function<bool()>& poll);
  // Lets the library move messages. Cheap; called every few milliseconds.
  virtual void progress() = 0;

  // Collectives, on device memory for the cuda device. Each returns a ticket; all ranks issue them in the same order.
  // Sums run in a balanced binary tree over the ranks, ((r0 + r1) + (r2 + r3)) + .., where their number is a power of
  // two, and in rank order, ((r0 + r1) + r2) + .., where it is not, whatever the library does. Results are reproducible
  // and equal on all ranks bit for bit.
  virtual Ticket all_reduce(float* data, std::int64_t count) = 0;
  // Rank r has the piece [cuts[r], cuts[r + 1]) of `data`; cuts has size() + 1 numbers, the same on all ranks, and
  // stays unchanged until the ticket is done. The sum of each piece arrives at its rank; the contents of the other
  // pieces are then undefined.
  virtual Ticket reduce_scatter(float* data, std::span<const std::int64_t> cuts) = 0;
  // Every rank receives the pieces of all others.
  virtual Ticket all_gather(float* data, std::span<const std::int64_t> cuts) = 0;

  // Host-side collectives on small data (plans, norms, losses, errors); they return when done and may not be called
  // while a step is running on channels of the same communicator.
  virtual void all_reduce_host(std::span<double> data) = 0;  // sums in rank order
  // Sum of arrays in which each element is nonzero on at most one rank: nothing is rounded, so the order does not
  // matter.
  virtual void one_hot_sum(std::span<double> data) = 0;
  // The same without waiting: leave `data` unchanged until the ticket is done; it then holds the result.
  virtual Ticket start_one_hot_sum(std::span<double> data) = 0;
  virtual void broadcast_host(void* data, std::int64_t bytes, int root) = 0;
  // Rank `root` gets the bytes of all ranks in rank order (other ranks: empty).
  virtual std::vector<std::vector<char>> gather_host(std::span<const char> data, int root) = 0;
  virtual void barrier() = 0;

  // A communicator of the ranks with equal `color`, ordered by `key` (collective over this communicator).
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // Ends all ranks of the job at once with this exit status (after an error that only this rank knows).
  [[noreturn]] virtual void abort(int status) = 0;

  // Half-open range of elements.
  struct Piece {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  // Piece r of `count` elements, cut at multiples of 64 into nearly equal pieces: the shares of an all-reduce.
  static Piece piece(std::int64_t count, int r, int pieces);

 protected:
  void idle() const {
    if (idle_hook_) idle_hook_();
  }

 private:
  std::function<void()> idle_hook_;
};

// Calls `poll` until it returns true: about 50 times with sched_yield, then with naps growing from 20 us to 1 ms, so
// that more ranks than cores do not slow each other down. `poll` calls progress().
void wait_until(const std::function<bool()>& poll);

inline void Communicator::await_until(const std::function<bool()>& poll) {
  wait_until([&] {
    progress();
    if (poll()) return true;
    idle();
    return false;
  });
}

}  // namespace train_gpt

#include "kernels/cpu/mpi_communicator.h"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/mpi_collective.h"

namespace train_gpt {
namespace {

constexpr int kCollectiveTags = 16384;  // collectives take tags from here up, channels stay below

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, const MpiOptions& options) : comm_(comm), options_(options) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void open_channels(std::span<const ChannelEnds> channels) override {
    channels_.assign(channels.begin(), channels.end());
  }

  Ticket send(int channel, const void* data, std::int64_t bytes) override {
    const int peer = channels_.at(static_cast<std::size_t>(channel)).destination;
    return start(bytes, /*receives=*/false, [&](std::int64_t at, int length, MPI_Request* request) {
      const auto send = options_.synchronous_sends ? MPI_Issend : MPI_Isend;
      check_mpi(send(static_cast<const char*>(data) + at, length, MPI_BYTE, peer, channel, comm_, request), "send");
    });
  }

  Ticket receive(int channel, void* data, std::int64_t bytes) override {
    const int peer = channels_.at(static_cast<std::size_t>(channel)).source;
    return start(bytes, /*receives=*/true, [&](std::int64_t at, int length, MPI_Request* request) {
      check_mpi(MPI_Irecv(static_cast<char*>(data) + at, length, MPI_BYTE, peer, channel, comm_, request), "receive");
    });
  }

  bool done(Ticket ticket) override {
    if (ticket == 0) return true;
    const int index = index_of(ticket);
    Operation& op = operations_[static_cast<std::size_t>(index)];
    if (op.generation != generation_of(ticket)) return true;
    if (op.collective ? !advance_collective(index) : !test_messages(op)) return false;
    ++op.generation;
    op.requests.clear();
    op.collective.reset();
    active_.erase(std::find(active_.begin(), active_.end(), index));
    free_.push_back(index);
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

  // Testing any request lets MPICH move all of them; a collective also needs its next round posted.
  void progress() override {
    if (active_.empty()) {
      int flag = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &flag, MPI_STATUS_IGNORE);
    }
    for (std::size_t i = active_.size(); i-- > 0;) {  // done() erases: go backwards
      const int index = active_[i];
      done(ticket_of(index, operations_[static_cast<std::size_t>(index)].generation));
    }
  }

  Ticket all_reduce(float* data, std::int64_t count) override {
    std::vector<std::int64_t> cuts = {0};
    for (int r = 0; r < size_; ++r) cuts.push_back(piece(count, r, size_).end);
    return start_collective(MpiCollective::Kind::all_reduce, data, std::move(cuts));
  }
  Ticket reduce_scatter(float* data, std::span<const std::int64_t> cuts) override {
    return start_collective(MpiCollective::Kind::reduce_scatter, data, {cuts.begin(), cuts.end()});
  }
  Ticket all_gather(float* data, std::span<const std::int64_t> cuts) override {
    return start_collective(MpiCollective::Kind::all_gather, data, {cuts.begin(), cuts.end()});
  }

  void all_reduce_host(std::span<double> data) override {
    if (size_ == 1) return;
    constexpr std::size_t kChunk = 8192;
    std::vector<double> all(std::min(kChunk, data.size()) * static_cast<std::size_t>(size_));
    for (std::size_t at = 0; at < data.size(); at += kChunk) {
      const std::size_t n = std::min(kChunk, data.size() - at);
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Iallgather(data.data() + at, static_cast<int>(n), MPI_DOUBLE, all.data(), static_cast<int>(n),
                               MPI_DOUBLE, comm_, &request),
                "all-reduce");
      finish(request);
      for (std::size_t i = 0; i < n; ++i) {
        double sum = all[i];
        for (std::size_t r = 1; r < static_cast<std::size_t>(size_); ++r) sum += all[r * n + i];
        data[at + i] = sum;
      }
    }
  }

  void one_hot_sum(std::span<double> data) override {
    constexpr std::size_t kChunk = std::size_t{1} << 24;
    for (std::size_t at = 0; at < data.size(); at += kChunk) {
      const int n = static_cast<int>(std::min(kChunk, data.size() - at));
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data.data() + at, n, MPI_DOUBLE, MPI_SUM, comm_, &request), "one-hot sum");
      finish(request);
    }
  }

  Ticket start_one_hot_sum(std::span<double> data) override {
    constexpr std::size_t kChunk = std::size_t{1} << 24;
    const int index = claim();
    Operation& op = operations_[static_cast<std::size_t>(index)];
    op.receives = false;
    for (std::size_t at = 0; at < data.size(); at += kChunk) {
      const int n = static_cast<int>(std::min(kChunk, data.size() - at));
      check_mpi(
          MPI_Iallreduce(MPI_IN_PLACE, data.data() + at, n, MPI_DOUBLE, MPI_SUM, comm_, &op.requests.emplace_back()),
          "one-hot sum");
    }
    return ticket_of(index, op.generation);
  }

  void broadcast_host(void* data, std::int64_t bytes, int root) override {
    for (std::int64_t at = 0; at < bytes; at += options_.largest_message) {
      MPI_Request request = MPI_REQUEST_NULL;
      const int length = static_cast<int>(std::min(options_.largest_message, bytes - at));
      check_mpi(MPI_Ibcast(static_cast<char*>(data) + at, length, MPI_BYTE, root, comm_, &request), "broadcast");
      finish(request);
    }
  }

  std::vector<std::vector<char>> gather_host(std::span<const char> data, int root) override {
    const int mine = static_cast<int>(data.size());
    std::vector<int> sizes(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Igather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, root, comm_, &request), "gather");
    finish(request);
    std::vector<int> offsets(sizes.size());
    std::size_t total = 0;
    for (std::size_t r = 0; r < sizes.size() && rank_ == root; ++r) {
      offsets[r] = static_cast<int>(total);
      total += static_cast<std::size_t>(sizes[r]);
    }
    std::vector<char> flat(total);
    check_mpi(MPI_Igatherv(data.data(), mine, MPI_BYTE, flat.data(), sizes.data(), offsets.data(), MPI_BYTE, root,
                           comm_, &request),
              "gather");
    finish(request);
    std::vector<std::vector<char>> parcels;
    for (std::size_t r = 0; r < sizes.size() && rank_ == root; ++r) {
      const char* begin = flat.data() + offsets[r];
      parcels.emplace_back(begin, begin + sizes[r]);
    }
    return parcels;
  }

  void barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(comm_, &request), "barrier");
    finish(request);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    MPI_Comm child = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(comm_, color, key, &child), "split");
    return std::make_unique<MpiCommunicator>(child, options_);
  }

  [[noreturn]] void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();
  }

 private:
  struct Operation {
    std::uint32_t generation = 1;  // a ticket of an older generation is done
    bool receives = false;
    std::int64_t bytes = 0;
    std::vector<MPI_Request> requests;
    std::optional<MpiCollective> collective;
  };

  static Ticket ticket_of(int index, std::uint32_t generation) {
    return static_cast<Ticket>(static_cast<std::uint64_t>(generation) << 31 | static_cast<std::uint64_t>(index));
  }
  static int index_of(Ticket ticket) { return static_cast<int>(ticket & 0x7fffffff); }
  static std::uint32_t generation_of(Ticket ticket) { return static_cast<std::uint32_t>(ticket >> 31); }

  int claim() {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(operations_.size()));
      operations_.emplace_back();
    }
    const int index = free_.back();
    free_.pop_back();
    active_.push_back(index);
    return index;
  }

  template <typename Post>
  Ticket start(std::int64_t bytes, bool receives, const Post& post) {
    const int index = claim();
    Operation& op = operations_[static_cast<std::size_t>(index)];
    op.bytes = bytes;
    op.receives = receives;
    std::int64_t at = 0;
    do {
      const auto length = static_cast<int>(std::min(options_.largest_message, bytes - at));
      post(at, length, &op.requests.emplace_back());
      at += length;
    } while (at < bytes);
    return ticket_of(index, op.generation);
  }

  bool test_messages(Operation& op) {
    int finished = 0;
    statuses_.resize(op.requests.size());
    check_mpi(MPI_Testall(static_cast<int>(op.requests.size()), op.requests.data(), &finished, statuses_.data()),
              op.receives ? "receive" : "send");
    if (finished == 0) return false;
    if (op.receives) check_length(op.bytes);
    return true;
  }

  Ticket start_collective(MpiCollective::Kind kind, float* data, std::vector<std::int64_t> cuts) {
    if (staging_.empty()) staging_.resize(static_cast<std::size_t>(MpiCollective::staging_elements(size_)));
    const int index = claim();
    Operation& op = operations_[static_cast<std::size_t>(index)];
    const int tag = kCollectiveTags + static_cast<int>(collectives_++ % kCollectiveTags);
    op.collective.emplace(comm_, tag, kind, data, std::move(cuts), staging_.data());
    collective_queue_.push_back(index);
    const Ticket ticket = ticket_of(index, op.generation);
    done(ticket);  // posts the first round
    return ticket;
  }

  // Collectives share the staging buffer and run one after the other, in the order of their calls.
  bool advance_collective(int index) {
    if (collective_queue_.front() != index) return false;
    if (!operations_[static_cast<std::size_t>(index)].collective->advance()) return false;
    collective_queue_.pop_front();
    return true;
  }

  // A message shorter than its receive: the ends disagree about shapes.
  void check_length(std::int64_t expected) const {
    std::int64_t arrived = 0;
    for (const MPI_Status& status : statuses_) {
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      arrived += count;
    }
    if (arrived != expected) {
      throw std::runtime_error("MPI: a message of " + std::to_string(arrived) + " bytes arrived on rank " +
                               std::to_string(rank_) + " where " + std::to_string(expected) + " were expected");
    }
  }

  void finish(MPI_Request& request) const {
    wait_until([&] {
      int finished = 0;
      check_mpi(MPI_Test(&request, &finished, MPI_STATUS_IGNORE), "collective");
      if (finished == 0) idle();
      return finished != 0;
    });
  }

  MPI_Comm comm_;
  MpiOptions options_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<ChannelEnds> channels_;
  std::deque<Operation> operations_;  // references stay valid while it grows
  std::vector<int> free_;
  std::vector<int> active_;
  std::deque<int> collective_queue_;
  std::vector<MPI_Status> statuses_;
  std::vector<float> staging_;
  std::int64_t collectives_ = 0;
};

// SLURM_NTASKS would be wrong: sbatch and salloc set it also for programs that run in their allocation without srun.
int launched_ranks() {
  for (const char* name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 1;
}

std::string library_version() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string text(version, static_cast<std::size_t>(length));
  return text.substr(0, text.find('\n'));
}

}  // namespace

MpiSession::MpiSession() {
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (const int launched = launched_ranks(); size == 1 && launched > 1) {
    throw std::invalid_argument(
        "the launcher started " + std::to_string(launched) +
        " processes, but each of them is rank 0 of 1: mpirun and the MPI library of this program "
        "come from different MPIs. Use the mpirun that belongs to " +
        library_version() + "; under Slurm: srun --mpi=pmi2, or another that srun --mpi=list names");
  }
}

MpiSession::~MpiSession() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return std::make_unique<MpiCommunicator>(comm, options);
}

HostPlace host_place() {
  MPI_Comm host = MPI_COMM_NULL;
  HostPlace place;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  MPI_Comm_size(host, &place.ranks);
  MPI_Comm_rank(host, &place.index);
  int mine = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &mine);
  place.members.resize(static_cast<std::size_t>(place.ranks));
  check_mpi(MPI_Allgather(&mine, 1, MPI_INT, place.members.data(), 1, MPI_INT, host), "MPI_Allgather");
  MPI_Comm_free(&host);
  return place;
}

}  // namespace train_gpt

// The emulated NCCL's functions: arguments checked, then handed to creation (nccl_communicator.h) or launch
// (nccl_group.h). A refusal prints what was asked and what would be right, and is what ncclGetLastError gives.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "memory.h"
#include "nccl_communicator.h"
#include "nccl_group.h"
#include "nccl_reduction.h"
#include "nccl_refusal.h"
#include "nccl_watch.h"
#include "stream.h"

namespace emulator::nccl {
namespace {

// Whether the communicator can be used now; says so otherwise.
ncclResult_t check(const std::string& call, ncclComm_t communicator) {
  if (communicator == nullptr || !is_live(communicator)) {
    return refuse(ncclInvalidArgument, call, "the communicator is null or destroyed");
  }
  switch (communicator->state) {
    case CommunicatorState::ready:
      return ncclSuccess;
    case CommunicatorState::creating:
      return refuse(ncclInvalidArgument, call,
                    "the communicator is still being created: poll ncclCommGetAsyncError first");
    default:
      return refuse(ncclInvalidUsage, call, "the communicator failed, was finalized or aborted");
  }
}

ncclResult_t check_ready_for_creation(const std::string& call, const ncclConfig_t* config) {
  if (!mpi_is_running()) return refuse(ncclSystemError, call, "NCCL is emulated over MPI: call MPI_Init before it");
  const std::string wrong = config == nullptr ? "" : check_config(*config);
  return wrong.empty() ? ncclSuccess : refuse(ncclInvalidArgument, call, wrong);
}

std::string check_buffers(const Call& call) {
  const auto* from = static_cast<const char*>(call.send_buffer);
  auto* to = static_cast<char*>(call.receive_buffer);
  if ((call.send_bytes() != 0 && from == nullptr) || (call.receive_bytes() != 0 && to == nullptr))
    return "a buffer is null";
  require_device_range(from, call.send_bytes(), (call.describe() + " send buffer").c_str());
  require_device_range(to, call.receive_bytes(), (call.describe() + " receive buffer").c_str());
  const bool overlap = call.send_bytes() != 0 && call.receive_bytes() != 0 && from < to + call.receive_bytes() &&
                       to < from + call.send_bytes();
  if (!overlap) return "";
  const std::size_t mine =
      static_cast<std::size_t>(call.communicator->rank) * call.count * nccl_element_bytes(call.type);
  const bool in_place = call.kind == CallKind::all_gather       ? from == to + mine
                        : call.kind == CallKind::reduce_scatter ? to == from + mine
                                                                : from == to;
  return in_place ? "" : "the buffers overlap in another way than in place";
}

ncclResult_t issue(CallKind kind, const void* send, void* receive, size_t count, ncclDataType_t type,
                   ncclRedOp_t reduction, int root, ncclComm_t communicator, cudaStream_t stream, const char* name) {
  if (const ncclResult_t result = check(name, communicator); result != ncclSuccess) return result;
  if (nccl_element_bytes(type) == 0) return refuse(ncclInvalidArgument, name, "no such type: " + nccl_type_name(type));
  const bool reduces = kind == CallKind::all_reduce || kind == CallKind::reduce_scatter || kind == CallKind::reduce;
  if (reduces && (reduction < 0 || reduction >= ncclNumOps)) {
    return refuse(ncclInvalidArgument, name, "the reduction is none of sum, prod, max, min, avg");
  }
  if (reduces && !is_reducible(type))
    return refuse(ncclInvalidUsage, name, nccl_type_name(type) + " cannot be reduced here");
  if (root < 0 || root >= communicator->size()) {
    return refuse(ncclInvalidArgument, name, "rank " + std::to_string(root) + " is not in " + communicator->describe());
  }
  auto call = std::make_unique<Call>();
  call->kind = kind;
  call->send_buffer = send;
  call->receive_buffer = receive;
  call->count = count;
  call->type = type;
  call->reduction = reduction;
  call->root = root;
  call->communicator = communicator;
  call->stream = stream;
  if (const std::string wrong = check_buffers(*call); !wrong.empty())
    return refuse(ncclInvalidArgument, call->describe(), wrong);
  return add_call(std::move(call));
}

// Drives until the communicator has nothing in flight.
void drain(ncclComm& communicator, const char* call) {
  const std::string what = std::string(call) + " of " + communicator.describe();
  drive_until(
      [&] {
        const bool done = advance_launches(&communicator) && communicator.batches.empty();
        if (!done) note_idle();
        return done;
      },
      what);
}

}  // namespace
}  // namespace emulator::nccl

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names
using namespace emulator::nccl;

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return refuse(ncclInvalidArgument, "ncclGetVersion", "version is null");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const ncclResult_t result = check_ready_for_creation("ncclGetUniqueId", nullptr); result != ncclSuccess)
    return result;
  if (id == nullptr) return refuse(ncclInvalidArgument, "ncclGetUniqueId", "uniqueId is null");
  static std::uint64_t issued = 0;
  const std::uint64_t words[2] = {static_cast<std::uint64_t>(world_rank()), ++issued};
  *id = {};
  std::memcpy(id->internal, words, sizeof words);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config) {
  const std::string call = "ncclCommInitRank(" + std::to_string(nranks) + " ranks, rank " + std::to_string(rank) + ")";
  if (const ncclResult_t result = check_ready_for_creation(call, config); result != ncclSuccess) return result;
  if (comm == nullptr || nranks < 1 || rank < 0 || rank >= nranks) {
    return refuse(ncclInvalidArgument, call, "the rank must be from 0 to one less than the number of ranks");
  }
  *comm = begin_communicator(commId, nranks, rank, config);
  return add_creation(comm);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return ncclCommInitRankConfig(comm, nranks, commId, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  if (const ncclResult_t result = check("ncclCommSplit", comm); result != ncclSuccess) return result;
  if (const ncclResult_t result = check_ready_for_creation("ncclCommSplit", config); result != ncclSuccess)
    return result;
  if (newcomm == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
    return refuse(ncclInvalidArgument, "ncclCommSplit", "the color must be NCCL_SPLIT_NOCOLOR or not negative");
  }
  *newcomm = begin_split(*comm, color, key, config);
  return add_creation(newcomm);
}

// "flushes all issued communications"
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t result = check("ncclCommFinalize", comm); result != ncclSuccess) return result;
  comm->state = CommunicatorState::finalizing;
  if (!comm->blocking) return ncclInProgress;
  drain(*comm, "ncclCommFinalize");
  comm->state = CommunicatorState::finalized;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "ncclCommDestroy", "the communicator is destroyed");
  if (comm->state == CommunicatorState::creating) {
    return refuse(ncclInvalidUsage, "ncclCommDestroy", "the communicator is still being created");
  }
  if (comm->state == CommunicatorState::ready || comm->state == CommunicatorState::finalizing)
    drain(*comm, "ncclCommDestroy");
  forget(comm);
  return ncclSuccess;
}

// Its operations in flight end at once; what they would have received stays NaN.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "ncclCommAbort", "the communicator is destroyed");
  abandon_batches(*comm);
  forget(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  if (comm == nullptr || !is_live(comm) || asyncError == nullptr) {
    return refuse(ncclInvalidArgument, "ncclCommGetAsyncError",
                  "the communicator is null or destroyed, or the result null");
  }
  emulator::drive();  // time passes on the device, too
  if (comm->state == CommunicatorState::creating && !advance_creation(*comm)) {
    note_idle();
    *asyncError = ncclInProgress;
    return ncclSuccess;
  }
  const bool launched = comm->state == CommunicatorState::failed || advance_launches(comm);
  if (comm->state == CommunicatorState::finalizing && launched && comm->batches.empty())
    comm->state = CommunicatorState::finalized;
  const bool busy = !launched || comm->state == CommunicatorState::finalizing;
  *asyncError = busy ? ncclInProgress : comm->asynchronous_error;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (const ncclResult_t result = check("ncclCommCount", comm); result != ncclSuccess) return result;
  *count = comm->size();
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  if (const ncclResult_t result = check("ncclCommCuDevice", comm); result != ncclSuccess) return result;
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (const ncclResult_t result = check("ncclCommUserRank", comm); result != ncclSuccess) return result;
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return issue(CallKind::send, sendbuff, nullptr, count, datatype, ncclSum, peer, comm, stream, "ncclSend");
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return issue(CallKind::receive, nullptr, recvbuff, count, datatype, ncclSum, peer, comm, stream, "ncclRecv");
}

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue(CallKind::all_reduce, sendbuff, recvbuff, count, datatype, op, 0, comm, stream, "ncclAllReduce");
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return issue(CallKind::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream,
               "ncclReduceScatter");
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue(CallKind::all_gather, sendbuff, recvbuff, sendcount, datatype, ncclSum, 0, comm, stream,
               "ncclAllGather");
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue(CallKind::broadcast, sendbuff, recvbuff, count, datatype, ncclSum, root, comm, stream, "ncclBroadcast");
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return issue(CallKind::reduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream, "ncclReduce");
}

ncclResult_t ncclGroupStart() {
  group_start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (!in_group()) return refuse(ncclInvalidUsage, "ncclGroupEnd", "there was no ncclGroupStart");
  return group_end();
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return last_nccl_refusal().c_str(); }
// NOLINTEND

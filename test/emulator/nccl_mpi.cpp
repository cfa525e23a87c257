// MPI, interposed by its profiling interface: a rank whose host waits in MPI keeps its emulated device running, as a
// GPU would, naps instead of spinning, and is seen by the deadlock watch. Blocking calls become their non-blocking
// twins and a wait; calls that ask give the device one turn. A call without a non-blocking twin (creation of
// communicators) first waits, in the same way, until all its ranks are there.
#include <mpi.h>

#include <algorithm>
#include <string>
#include <vector>

#include "first_use.h"
#include "nccl_communicator.h"
#include "nccl_group.h"
#include "nccl_message.h"
#include "nccl_watch.h"
#include "stream.h"

namespace emulator::nccl {
namespace {

// Asks until `done`; only between MPI_Init and MPI_Finalize.
template <typename Done>
void wait_in_mpi(const char* call, Done&& done) {
  drive_until(
      [&] {
        serve_meetings();
        if (done()) {
          note_progress();
          return true;
        }
        note_idle();
        return false;
      },
      call);
}

int wait_for(const char* call, MPI_Request* request, MPI_Status* status) {
  int result = MPI_SUCCESS;
  wait_in_mpi(call, [&] {
    int flag = 0;
    result = PMPI_Test(request, &flag, status);
    return flag != 0 || result != MPI_SUCCESS;
  });
  return result;
}

// Posts the non-blocking twin and waits for it.
template <typename Post>
int post_and_wait(const char* call, Post&& post, MPI_Status* status = MPI_STATUS_IGNORE) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int result = post(&request);
  return result == MPI_SUCCESS ? wait_for(call, &request, status) : result;
}

int gather_at(const char* call, MPI_Comm communicator) {
  return post_and_wait(call, [&](MPI_Request* request) { return PMPI_Ibarrier(communicator, request); });
}

// One turn for the device after a question.
int asked(int result, const int* flag) {
  if (result == MPI_SUCCESS && *flag != 0) {
    note_progress();
  } else if (mpi_is_running()) {
    serve_meetings();
    if (!drive()) note_idle();
  }
  return result;
}

void opened() {
  open_private_world();
  open_watch();
  set_stuck_report(describe_calls);
}

}  // namespace
}  // namespace emulator::nccl

using namespace emulator::nccl;

// NOLINTBEGIN(readability-identifier-naming): MPI's names
int MPI_Init(int* argc, char*** argv) {
  emulator::cuda_starts();
  const int result = PMPI_Init(argc, argv);
  if (result == MPI_SUCCESS) opened();
  return result;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  emulator::cuda_starts();
  const int result = PMPI_Init_thread(argc, argv, required, provided);
  if (result == MPI_SUCCESS) opened();
  return result;
}

int MPI_Finalize() {
  gather_at("MPI_Finalize", private_world());
  close_watch();
  close_private_world();
  return PMPI_Finalize();
}

// ---- point to point ----------------------------------------------------------------------------------------------
int MPI_Send(const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
  return post_and_wait("MPI_Send", [&](MPI_Request* r) { return PMPI_Isend(buf, count, type, dest, tag, comm, r); });
}

int MPI_Ssend(const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
  return post_and_wait("MPI_Ssend", [&](MPI_Request* r) { return PMPI_Issend(buf, count, type, dest, tag, comm, r); });
}

int MPI_Recv(void* buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status* status) {
  return post_and_wait(
      "MPI_Recv", [&](MPI_Request* r) { return PMPI_Irecv(buf, count, type, source, tag, comm, r); }, status);
}

int MPI_Sendrecv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag, void* recvbuf,
                 int recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status* status) {
  MPI_Request send = MPI_REQUEST_NULL;
  int result = PMPI_Isend(sendbuf, sendcount, sendtype, dest, sendtag, comm, &send);
  if (result != MPI_SUCCESS) return result;
  result = MPI_Recv(recvbuf, recvcount, recvtype, source, recvtag, comm, status);
  return result == MPI_SUCCESS ? wait_for("MPI_Sendrecv", &send, MPI_STATUS_IGNORE) : result;
}

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status) {
  int result = MPI_SUCCESS;
  wait_in_mpi("MPI_Probe", [&] {
    int flag = 0;
    result = PMPI_Iprobe(source, tag, comm, &flag, status);
    return flag != 0 || result != MPI_SUCCESS;
  });
  return result;
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  return asked(PMPI_Iprobe(source, tag, comm, flag, status), flag);
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
  return asked(PMPI_Improbe(source, tag, comm, flag, message, status), flag);
}

// ---- completion --------------------------------------------------------------------------------------------------
int MPI_Wait(MPI_Request* request, MPI_Status* status) { return wait_for("MPI_Wait", request, status); }

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  int result = MPI_SUCCESS;
  wait_in_mpi("MPI_Waitall", [&] {
    int flag = 0;
    result = PMPI_Testall(count, requests, &flag, statuses);
    return flag != 0 || result != MPI_SUCCESS;
  });
  return result;
}

int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  int result = MPI_SUCCESS;
  wait_in_mpi("MPI_Waitany", [&] {
    int flag = 0;
    result = PMPI_Testany(count, requests, index, &flag, status);
    return flag != 0 || result != MPI_SUCCESS;
  });
  return result;
}

int MPI_Waitsome(int incount, MPI_Request requests[], int* outcount, int indices[], MPI_Status statuses[]) {
  int result = MPI_SUCCESS;
  wait_in_mpi("MPI_Waitsome", [&] {
    result = PMPI_Testsome(incount, requests, outcount, indices, statuses);
    return *outcount != 0 || result != MPI_SUCCESS;  // MPI_UNDEFINED: none is active
  });
  return result;
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  return asked(PMPI_Test(request, flag, status), flag);
}

int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  return asked(PMPI_Testall(count, requests, flag, statuses), flag);
}

int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  return asked(PMPI_Testany(count, requests, index, flag, status), flag);
}

int MPI_Testsome(int incount, MPI_Request requests[], int* outcount, int indices[], MPI_Status statuses[]) {
  return asked(PMPI_Testsome(incount, requests, outcount, indices, statuses), outcount);
}

// ---- collectives -------------------------------------------------------------------------------------------------
int MPI_Barrier(MPI_Comm comm) { return gather_at("MPI_Barrier", comm); }

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return post_and_wait("MPI_Bcast", [&](MPI_Request* r) { return PMPI_Ibcast(buffer, count, type, root, comm, r); });
}

int MPI_Reduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  return post_and_wait("MPI_Reduce",
                       [&](MPI_Request* r) { return PMPI_Ireduce(sendbuf, recvbuf, count, type, op, root, comm, r); });
}

int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return post_and_wait("MPI_Allreduce",
                       [&](MPI_Request* r) { return PMPI_Iallreduce(sendbuf, recvbuf, count, type, op, comm, r); });
}

int MPI_Gather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
               MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return post_and_wait("MPI_Gather", [&](MPI_Request* r) {
    return PMPI_Igather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, r);
  });
}

int MPI_Gatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
                const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return post_and_wait("MPI_Gatherv", [&](MPI_Request* r) {
    return PMPI_Igatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm, r);
  });
}

int MPI_Scatter(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return post_and_wait("MPI_Scatter", [&](MPI_Request* r) {
    return PMPI_Iscatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, r);
  });
}

int MPI_Allgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                  MPI_Datatype recvtype, MPI_Comm comm) {
  return post_and_wait("MPI_Allgather", [&](MPI_Request* r) {
    return PMPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, r);
  });
}

int MPI_Allgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
                   const int displs[], MPI_Datatype recvtype, MPI_Comm comm) {
  return post_and_wait("MPI_Allgatherv", [&](MPI_Request* r) {
    return PMPI_Iallgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, r);
  });
}

int MPI_Alltoall(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                 MPI_Datatype recvtype, MPI_Comm comm) {
  return post_and_wait("MPI_Alltoall", [&](MPI_Request* r) {
    return PMPI_Ialltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, r);
  });
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* newcomm) {
  const int result = gather_at("MPI_Comm_split", comm);
  return result == MPI_SUCCESS ? PMPI_Comm_split(comm, color, key, newcomm) : result;
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* newcomm) {
  const int result = gather_at("MPI_Comm_split_type", comm);
  return result == MPI_SUCCESS ? PMPI_Comm_split_type(comm, type, key, info, newcomm) : result;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* newcomm) {
  const int result = gather_at("MPI_Comm_dup", comm);
  return result == MPI_SUCCESS ? PMPI_Comm_dup(comm, newcomm) : result;
}
// NOLINTEND

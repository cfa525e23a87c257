#include "sites.h"

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace emulator {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
const std::string& list_file() {
  static const std::string name = variable("EMULATOR_SITES");
  return name;
}
const std::string& skipped_site() {
  static const std::string site = variable("EMULATOR_SKIP");
  return site;
}

}  // namespace

bool sites_matter = !list_file().empty() || !skipped_site().empty();

bool note_site(const char* operation, Where where) {
  static std::set<std::pair<const char*, int>> listed;
  const std::string site = text(where);
  if (!list_file().empty() && listed.emplace(where.file, where.line).second) {
    if (std::FILE* file = std::fopen(list_file().c_str(), "a")) {
      std::fprintf(file, "%s %s\n", operation, site.c_str());
      std::fclose(file);
    }
  }
  return site == skipped_site();
}

cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags, const char* file, int line) {
  return left_out("cudaStreamWaitEvent", {file, line}) ? cudaSuccess : cudaStreamWaitEvent(stream, event, flags);
}
cudaError_t event_record(cudaEvent_t event, cudaStream_t stream, const char* file, int line) {
  return left_out("cudaEventRecord", {file, line}) ? cudaSuccess : cudaEventRecord(event, stream);
}
cudaError_t event_synchronize(cudaEvent_t event, const char* file, int line) {
  return left_out("cudaEventSynchronize", {file, line}) ? cudaSuccess : cudaEventSynchronize(event);
}
cudaError_t stream_synchronize(cudaStream_t stream, const char* file, int line) {
  return left_out("cudaStreamSynchronize", {file, line}) ? cudaSuccess : cudaStreamSynchronize(stream);
}
cudaError_t device_synchronize(const char* file, int line) {
  return left_out("cudaDeviceSynchronize", {file, line}) ? cudaSuccess : cudaDeviceSynchronize();
}

}  // namespace emulator

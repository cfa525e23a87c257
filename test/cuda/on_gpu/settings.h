// In place of the emulator's settings.h where the tests of this folder run on a real GPU: the GPU chooses the order of
// threads and streams, so that tests in several orders repeat themselves, and its cuBLASLt has the epilogues that it
// has.
#pragma once

// The sizes of real models as well, which the emulator would take hours for.
#define TRAIN_GPT_ON_CARD

namespace emulator {

enum class ThreadOrder { forward, reverse, random };
enum class StreamOrder { issue, latest, random };

struct Settings {
  ThreadOrder thread_order = ThreadOrder::forward;
  StreamOrder stream_order = StreamOrder::issue;
  bool cublaslt_epilogues = true;
};

inline Settings& settings() {
  static Settings current;
  return current;
}

}  // namespace emulator

// Text files to one token file and its manifest.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace train_gpt {

struct PrepareSummary {
  std::int64_t tokens = 0;  // end-of-text ids included
  std::int64_t documents = 0;
  std::int64_t empty_files = 0;  // left out
};

// Writes `output` (uint16 ids) and its manifest from the bytes of `text_files`, one document each, every document after
// an end-of-text id; files without a byte are left out. Both appear under their names only when complete; missing
// folders are made. `progress` is called about every 16 MB with the bytes done and the bytes in all.
// Throws std::invalid_argument if there is no text, a text cannot be read or is too large for one token file, or the
// output is one of the texts; std::runtime_error if the output cannot be written.
PrepareSummary prepare_bytes(const std::vector<std::string>& text_files, const std::string& output,
                             const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace train_gpt

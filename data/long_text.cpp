#include "data/long_text.h"

#include <algorithm>
#include <cctype>

#include "data/parallel_work.h"

namespace train_gpt {
namespace {

// Neighbouring cuts of a stretch: the first begins at `begin`, each other one where the one before ends.
struct Cuts {
  std::size_t begin = 0;
  std::vector<std::size_t> ends;

  std::size_t end() const { return ends.empty() ? begin : ends.back(); }
};

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// A place near `wanted` where a cut probably begins, and a character certainly: after a line's end that is not followed
// by white space.
std::size_t likely_cut(std::string_view stretch, std::size_t wanted) {
  constexpr std::size_t kLongestSearch = 4096;
  const std::size_t last = std::min(stretch.size(), wanted + kLongestSearch);
  for (std::size_t at = wanted; at < last; ++at) {
    if (stretch[at - 1] == '\n' && !is_space(stretch[at])) return at;
  }
  while (wanted < stretch.size() && (static_cast<unsigned char>(stretch[wanted]) & 0xC0) == 0x80) ++wanted;
  return wanted;
}

// Continues `before` until one of its cuts falls on one of `guessed`, and drops the cuts of `guessed` before that.
void join(std::string_view stretch, Encoder& encoder, Cuts& before, Cuts& guessed) {
  while (before.end() < guessed.end()) {
    if (before.end() == guessed.begin) return;
    const auto met = std::lower_bound(guessed.ends.begin(), guessed.ends.end(), before.end());
    if (*met == before.end()) {
      guessed.begin = *met;
      guessed.ends.erase(guessed.ends.begin(), met + 1);
      return;
    }
    encoder.cut_ends(stretch, before.end(), before.end() + 1, before.ends);
  }
  guessed = {before.end(), {}};
}

// Cuts a stretch, some megabytes at a time; `take` gets the cuts in order, one Cuts per thread.
void cut_in_parallel(std::string_view stretch, std::span<Encoder> encoders, std::size_t segment_bytes,
                     const std::function<void(const std::vector<Cuts>&)>& take) {
  std::vector<Cuts> segments(encoders.size());
  for (std::size_t done = 0; done < stretch.size(); done = segments.back().end()) {
    std::vector<std::size_t> begins = {done};
    for (std::size_t i = 1; i <= segments.size(); ++i) {
      const std::size_t wanted = std::min(done + i * segment_bytes, stretch.size());
      begins.push_back(std::max(begins.back(), likely_cut(stretch, wanted)));
    }
    work_in_parallel(static_cast<int>(encoders.size()), segments.size(), [&](int thread, std::size_t i) {
      segments[i] = {begins[i], {}};
      encoders[static_cast<std::size_t>(thread)].cut_ends(stretch, begins[i], begins[i + 1], segments[i].ends);
    });
    for (std::size_t i = 1; i < segments.size(); ++i) join(stretch, encoders.front(), segments[i - 1], segments[i]);
    take(segments);
  }
}

template <typename Visit>
void for_each_cut(std::string_view stretch, const Cuts& cuts, const Visit& visit) {
  std::size_t at = cuts.begin;
  for (const std::size_t end : cuts.ends) {
    visit(stretch.substr(at, end - at));
    at = end;
  }
}

}  // namespace

void encode_long_text(std::string_view text, std::span<Encoder> encoders,
                      const std::function<void(std::span<const std::int32_t>, std::size_t)>& take,
                      std::size_t segment_bytes) {
  const int threads = static_cast<int>(encoders.size());
  std::vector<std::vector<std::int32_t>> ids(encoders.size());
  encoders.front().for_each_stretch(text, [&](const Encoder::Stretch& stretch) {
    if (stretch.id) return take({&*stretch.id, 1}, stretch.text.size());
    cut_in_parallel(stretch.text, encoders, segment_bytes, [&](const std::vector<Cuts>& segments) {
      work_in_parallel(threads, segments.size(), [&](int thread, std::size_t i) {
        ids[i].clear();
        for_each_cut(stretch.text, segments[i],
                     [&](std::string_view cut) { encoders[static_cast<std::size_t>(thread)].encode_cut(cut, ids[i]); });
      });
      for (std::size_t i = 0; i < segments.size(); ++i) take(ids[i], segments[i].end() - segments[i].begin);
    });
  });
}

void count_pieces(std::string_view text, Encoder& encoder, PieceCounts& counts) {
  encoder.for_each_stretch(text, [&](const Encoder::Stretch& stretch) {
    if (stretch.id) return;
    Cuts cuts;
    encoder.cut_ends(stretch.text, 0, stretch.text.size(), cuts.ends);
    for_each_cut(stretch.text, cuts, [&](std::string_view cut) {
      encoder.for_each_piece(cut, [&](std::string_view piece) { counts.add(piece); });
    });
  });
}

void count_long_text(std::string_view text, std::span<Encoder> encoders, std::span<PieceCounts> counts,
                     std::size_t segment_bytes) {
  const int threads = static_cast<int>(encoders.size());
  encoders.front().for_each_stretch(text, [&](const Encoder::Stretch& stretch) {
    if (stretch.id) return;
    cut_in_parallel(stretch.text, encoders, segment_bytes, [&](const std::vector<Cuts>& segments) {
      work_in_parallel(threads, segments.size(), [&](int thread, std::size_t i) {
        const auto of_thread = static_cast<std::size_t>(thread);
        for_each_cut(stretch.text, segments[i], [&](std::string_view cut) {
          encoders[of_thread].for_each_piece(cut, [&](std::string_view piece) { counts[of_thread].add(piece); });
        });
      });
    });
  });
}

}  // namespace train_gpt

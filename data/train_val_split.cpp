#include "data/train_val_split.h"

#include <algorithm>
#include <cmath>

namespace train_gpt {

TrainValSplit::TrainValSplit(double fraction, const std::vector<std::string>& files, const DocumentSettings& settings)
    : fraction_(fraction) {
  if (fraction == 0) return;
  DocumentReader reader(files, settings);
  Document document;
  while (static_cast<double>(reader.place().document) * fraction < 1) {
    if (reader.next(document)) continue;
    by_document_ = false;
    return;
  }
}

TrainValSplit::Parts TrainValSplit::parts(std::int64_t index, std::string_view text) const {
  if (fraction_ == 0) return {text, {}};
  if (by_document_) {
    const auto before = static_cast<double>(index);
    const bool validates = std::floor((before + 1) * fraction_) > std::floor(before * fraction_);
    return validates ? Parts{{}, text} : Parts{text, {}};
  }
  constexpr std::size_t kLongestLine = 65536;
  auto cut = static_cast<std::size_t>(static_cast<double>(text.size()) * (1 - fraction_));
  const std::size_t line = text.substr(cut, kLongestLine).find('\n');
  if (line != std::string_view::npos && cut + line + 1 < text.size()) {
    cut += line + 1;
  } else {
    while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) ++cut;
  }
  return {text.substr(0, cut), text.substr(cut)};
}

}  // namespace train_gpt

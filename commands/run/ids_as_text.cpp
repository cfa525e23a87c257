#include "commands/run/ids_as_text.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>

namespace train_gpt {

std::vector<std::int32_t> IdsAsText::prompt(const std::string& text) const {
  if (tokenizer_ != nullptr) {
    std::vector<std::int32_t> ids = {first_id()};
    const std::vector<std::int32_t> rest = tokenizer_->encode(text);
    ids.insert(ids.end(), rest.begin(), rest.end());
    return ids;
  }
  std::vector<std::int32_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::int32_t id = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0 || id >= vocab_) {
      throw std::invalid_argument("--prompt '" + word + "': the tokenizer of this model of " + std::to_string(vocab_) +
                                  " ids is not known, so the prompt is a list of ids 0 .. " +
                                  std::to_string(vocab_ - 1) + "; --tokenizer names one");
    }
    ids.push_back(id);
  }
  if (ids.empty()) ids.push_back(first_id());
  return ids;
}

std::string IdsAsText::push(std::int32_t id) {
  if (!decoder_) return std::to_string(id) + " ";
  const auto& tokens = tokenizer_->vocabulary().tokens;
  const bool known = static_cast<std::size_t>(id) < tokens.size() && !tokens[static_cast<std::size_t>(id)].empty();
  return known ? decoder_->push(id) : decoder_->finish() + "<" + std::to_string(id) + ">";
}

std::string StopText::push(const std::string& piece) {
  held_ += piece;
  if (stop_.empty()) return finish();
  const std::size_t at = held_.find(stop_);
  if (at != std::string::npos) {
    found_ = true;
    std::string shown = held_.substr(0, at);
    held_.clear();
    return shown;
  }
  // Holds back the longest end with which the stop text may begin.
  std::size_t keep = std::min(held_.size(), stop_.size() - 1);
  while (keep > 0 && held_.compare(held_.size() - keep, keep, stop_, 0, keep) != 0) --keep;
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

}  // namespace train_gpt

#pragma once

#include <string>

namespace train_gpt {

inline constexpr const char* kVersion = "1.0.0";  // as in CITATION.cff

// Version, compiler and the target of the build; one fact per line.
std::string version_text();

}  // namespace train_gpt

#pragma once

#include <string>

namespace train_gpt {

inline constexpr const char* kVersion = "1.0.0";  // as in CITATION.cff

// Version, compiler and what the program was compiled for; one fact a line.
std::string version_text();

}  // namespace train_gpt

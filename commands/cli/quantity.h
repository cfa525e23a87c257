// Numbers with units, as people write them: 1e3, 10k, 4GB, 512MiB, 1.5ms, 15min, 3h50m, 03:50:00, 25GB/s, 200Gbit/s.
// Every option that takes a number reads it here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace train_gpt {

// The kind of quantity, and the unit in which parse_quantity() returns it.
enum class Quantity : std::uint8_t {
  count,     // ones; k, M, G, T or B (thousand millions)
  bytes,     // B, kB, MB .. TB (powers of 1000), KiB, MiB .. TiB (powers of 1024), in any case
  duration,  // seconds; us, ms, s, min or m, h, d, several of them in a row (3h50m), or [D-]HH:MM:SS as Slurm writes it
  bandwidth,  // bytes per second; B/s, MB/s, GiB/s .., Mbit/s, Gbit/s ..
};

struct ParsedQuantity {
  long double value = 0;  // 64 bits of mantissa: whole numbers up to 2^64 are exact
  bool has_unit = false;  // without one, `value` is the number itself
};

// Empty unless all of `text` is one such quantity: finite, with at most one sign, at its start.
std::optional<ParsedQuantity> parse_quantity(std::string_view text, Quantity quantity);

// An example of correct input, for messages: "for example 8000000000, 512MiB or 80GB".
const char* examples_of(Quantity quantity);

}  // namespace train_gpt

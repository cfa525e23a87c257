#include "data/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace train_gpt {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read in place");

constexpr std::int32_t kMagic16 = 20240520;
constexpr std::int32_t kVersion16 = 1;
constexpr std::int32_t kMagic32 = 20240801;
constexpr std::int32_t kVersion32 = 7;
constexpr std::int32_t kModelMagic = 20240326;

using Header = std::array<std::int32_t, 3>;  // magic, version, token count

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw std::invalid_argument("token file '" + path + "' " + reason);
}

std::int32_t byte_swapped(std::int32_t value) {
  return static_cast<std::int32_t>(__builtin_bswap32(static_cast<std::uint32_t>(value)));
}

// 2 or 4, from magic and version.
int width_of(const std::string& path, const Header& header) {
  const auto [magic, version, count] = header;
  for (const std::int32_t known : {kMagic16, kMagic32}) {
    if (byte_swapped(magic) == known) {
      refuse(path,
             "is byte-swapped: it was written on a big-endian machine; token files are little-endian, write it again");
    }
  }
  if (magic == kModelMagic) refuse(path, "is a model file, not tokens; --init takes model files");
  if (magic != kMagic16 && magic != kMagic32) {
    refuse(path, "is no token file: it starts with " + std::to_string(magic) + " instead of 20240520 (uint16 ids) or " +
                     "20240801 (uint32 ids); make one with `train_gpt prepare`");
  }
  const std::int32_t expected = magic == kMagic16 ? kVersion16 : kVersion32;
  if (version != expected) {
    refuse(path, "has version " + std::to_string(version) + "; files that start with " + std::to_string(magic) +
                     " are read in version " + std::to_string(expected) + " only");
  }
  return magic == kMagic16 ? 2 : 4;
}

// Position of the first id that is not below vocab, or -1. Blocks are reduced to their maximum first, which the
// compiler turns into vector instructions.
template <typename Id>
std::int64_t first_beyond(const std::byte* tokens, std::int64_t count, std::int64_t vocab) {
  constexpr std::int64_t kBlock = 16384;
  const Id* ids = reinterpret_cast<const Id*>(tokens);  // the header leaves them aligned within the mapped page
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, count);
    Id largest = 0;
    for (std::int64_t i = begin; i < end; ++i) largest = std::max(largest, ids[i]);
    if (static_cast<std::int64_t>(largest) < vocab) continue;
    return std::find_if(ids + begin, ids + end, [vocab](Id id) { return static_cast<std::int64_t>(id) >= vocab; }) -
           ids;
  }
  return -1;
}

template <typename Id>
void copy_ids(std::int32_t* out, const std::byte* tokens, std::int64_t count) {
  const Id* ids = reinterpret_cast<const Id*>(tokens);
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(ids[i]);
}

std::int64_t id_at(const std::byte* token, int width) {
  std::uint32_t id = 0;
  std::memcpy(&id, token, static_cast<std::size_t>(width));
  return id;
}

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) {
      throw std::invalid_argument("cannot open token file '" + path + "': " + std::strerror(errno));
    }
  }
  ~Descriptor() { close(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

TokenFile::TokenFile(const std::string& path) : path_(path) {
  const Descriptor file(path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) refuse(path, std::string("cannot be examined: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse(path, "is not a regular file");
  const std::int64_t bytes = status.st_size;
  if (bytes == 0) refuse(path, "is empty; make one with `train_gpt prepare`");
  if (bytes < kTokenHeaderBytes) {
    refuse(path, "has " + std::to_string(bytes) + " bytes, less than the header of " +
                     std::to_string(kTokenHeaderBytes) +
                     " bytes that a token file starts with; make one with `train_gpt prepare`");
  }
  Header header{};
  if (pread(file.get(), header.data(), sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) {
    refuse(path, std::string("cannot be read: ") + std::strerror(errno));
  }
  bytes_per_token_ = width_of(path, header);
  token_count_ = header[2];
  if (token_count_ <= 0) refuse(path, "holds no tokens: its header counts " + std::to_string(token_count_));
  const std::int64_t expected = kTokenHeaderBytes + token_count_ * bytes_per_token_;
  if (bytes != expected) {
    refuse(path, "has " + std::to_string(bytes) + " bytes, but its header counts " + std::to_string(token_count_) +
                     " tokens, which take " + std::to_string(expected) + " bytes: it is " +
                     (bytes < expected ? "truncated or still being written" : "damaged or has something appended"));
  }
  try {
    mapped_ = MappedBytes(file.get(), static_cast<std::size_t>(bytes));
  } catch (const std::system_error& error) {
    throw std::runtime_error("cannot map token file '" + path + "' into memory: " + error.code().message());
  }
}

void TokenFile::read(std::int32_t* out, std::int64_t first, std::int64_t count, std::int64_t vocab) const {
  check_range(first, count, vocab);
  const std::byte* tokens = mapped_.bytes().data() + kTokenHeaderBytes + first * bytes_per_token_;
  if (bytes_per_token_ == 2) {
    copy_ids<std::uint16_t>(out, tokens, count);
  } else {
    copy_ids<std::uint32_t>(out, tokens, count);
  }
  require_whole();
}

void TokenFile::require_whole() const {
  if (!mapped_.cut_off()) return;
  throw std::runtime_error(
      "token file '" + path_ + "' was cut off while it was in use: it had " + std::to_string(mapped_.bytes().size()) +
      " bytes, and some of them are gone. Put the same file there again, and leave it as it is while "
      "runs read it");
}

void TokenFile::check_ids(std::int64_t vocab) const {
  const bool every_id_fits = bytes_per_token_ == 2 && vocab > 65535;
  if (!every_id_fits) check_range(0, token_count_, vocab);
}

void TokenFile::check_range(std::int64_t first, std::int64_t count, std::int64_t vocab) const {
  const std::byte* tokens = mapped_.bytes().data() + kTokenHeaderBytes + first * bytes_per_token_;
  const std::int64_t beyond = bytes_per_token_ == 2 ? first_beyond<std::uint16_t>(tokens, count, vocab)
                                                    : first_beyond<std::uint32_t>(tokens, count, vocab);
  require_whole();
  if (beyond < 0) return;
  const std::int64_t id = id_at(tokens + beyond * bytes_per_token_, bytes_per_token_);
  refuse(path_, "holds id " + std::to_string(id) + " at position " + std::to_string(first + beyond) +
                    ", but the vocabulary has " + std::to_string(vocab) + " ids, 0 to " + std::to_string(vocab - 1) +
                    "; use the tokens of this model's tokenizer, or a model with --vocab " + std::to_string(id + 1) +
                    " or more");
}

}  // namespace train_gpt

#!/usr/bin/env bash
# Finds the libraries by compiling and linking a small program against each, and writes what it found to the make file $1
# (without it: only installs). A package that is missing is named together with the command that installs it.
# Environment: CXX, MPI_HOME (prefix of an MPI installation), CUDA (0 leaves the GPU out), NCCL_HOME; INSTALL=1 installs what
# is missing with apt-get. PREFIX=DIR: the Debian packages are unpacked below DIR instead, which needs no root; the Makefile lets
# compiler, linker and loader look there.
set -u
out=${1:-/dev/null}
CXX=${CXX:-g++}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
missing=()

# links PROGRAM FLAGS..: true if the program text compiles and links with these flags
links() {
  local program=$1
  shift
  printf '%s\n' "$program" >"$work/probe.cpp"
  "$CXX" -std=c++20 "$work/probe.cpp" -o "$work/probe" "$@" >"$work/log" 2>&1
}

# first_that_links PROGRAM "flags" "flags" ..: prints the first set of flags that links
first_that_links() {
  local program=$1
  shift
  for flags in "$@"; do
    # shellcheck disable=SC2086
    if links "$program" $flags; then
      printf '%s' "$flags"
      return 0
    fi
  done
  return 1
}

# install PACKAGE..: with apt-get, as root or through sudo
install() {
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    root=(sudo)
    [ -t 0 ] && [ -t 2 ] || root=(sudo -n)  # nobody is there to type a password
    echo "installing needs root; sudo asks for your password (without root: make deps PREFIX=DIR)"
  fi
  echo "installing: $*"
  { "${root[@]}" apt-get update -qq && DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq "$@"; } \
    >"$work/apt" 2>&1 || { tail -n 5 "$work/apt" >&2; return 1; }
}

# unpack PACKAGE..: those packages, and what they depend on and the system does not have, below $PREFIX; without root
unpack() {
  local packages
  mapfile -t packages < <(printf '%s\n' "$@"; apt-get -s install --no-install-recommends "$@" 2>/dev/null | awk '$1 == "Inst" {print $2}')
  mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
  mkdir -p "$PREFIX" "$work/packages"
  echo "unpacking below $PREFIX: ${packages[*]}"
  (cd "$work/packages" && apt-get download -qq "${packages[@]}") >"$work/apt" 2>&1 || { tail -n 5 "$work/apt" >&2; return 1; }
  for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$PREFIX" || return 1; done
}

# Packages that the build needs beyond the compiler.
packages=(mpich libmpich-dev libcxxopts-dev nlohmann-json3-dev libgtest-dev libpcre2-dev)
# Packages that links in those lead to: below $PREFIX also where the system has it.
libraries=(libmpich12 libpcre2-8-0)
if [ "${UNPACK:-}" = 1 ] && [ "${UNPACKED:-}" != 1 ]; then
  unpack "${packages[@]}" "${libraries[@]}" || { echo "error: the packages cannot be unpacked below $PREFIX" >&2; exit 1; }
  rm -rf "$work"
  UNPACKED=1 exec "$0" "$@"
fi

if ! command -v "$CXX" >/dev/null; then
  if [ "${INSTALL:-}" != 1 ] || [ "$CXX" != g++ ] || ! install g++; then
    echo "error: no C++ compiler '$CXX'. Install one (apt-get install g++), or name another with CXX=" >&2
    exit 1
  fi
fi

mpi_program=$'#include <mpi.h>\nint main(int c, char** v) { return MPI_Init(&c, &v); }'
if [ -n "${MPI_HOME:-}" ]; then
  mpi=$(first_that_links "$mpi_program" \
    "-isystem $MPI_HOME/include -L$MPI_HOME/lib -Wl,-rpath,$MPI_HOME/lib -lmpi" \
    "-isystem $MPI_HOME/include -L$MPI_HOME/lib -Wl,-rpath,$MPI_HOME/lib -lmpich") ||
    { echo "error: MPI_HOME=$MPI_HOME has no usable include/mpi.h and lib/libmpi" >&2; exit 1; }
else
  mpi=$(first_that_links "$mpi_program" "-isystem /usr/include/x86_64-linux-gnu/mpich -lmpich" \
    "$(mpicxx.mpich -show 2>/dev/null | cut -d' ' -f2-)" "$(mpicxx -show 2>/dev/null | cut -d' ' -f2-)" "-lmpi") ||
    missing+=(libmpich-dev)
fi

links $'#include <cxxopts.hpp>\nint main() { cxxopts::Options o("x"); }' || missing+=(libcxxopts-dev)
links $'#include <nlohmann/json.hpp>\nint main() { return nlohmann::json().size() != 0; }' || missing+=(nlohmann-json3-dev)
links $'#include <gtest/gtest.h>\nTEST(a, b) {}' -lgtest -lgtest_main -lpthread || missing+=(libgtest-dev)
links $'#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\nint main() { return pcre2_config(PCRE2_CONFIG_UNICODE, nullptr); }' -lpcre2-8 || missing+=(libpcre2-dev)

if [ -z "${MPI_HOME:-}" ] && ! command -v mpirun.mpich >/dev/null && ! command -v mpirun >/dev/null; then
  missing+=(mpich)
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ "${INSTALL:-}" = 1 ] && [ "${INSTALLED:-}" != 1 ] && command -v apt-get >/dev/null && install "${missing[@]}"; then
    rm -rf "$work"
    INSTALLED=1 exec "$0" "$@"
  fi
  echo "error: missing: ${missing[*]}" >&2
  echo "Install with: make deps        (apt-get install ${missing[*]})" >&2
  exit 1
fi

split_flags() {  # compile flags or link flags out of a mixed list
  local kind=$1 flag
  shift
  for flag in "$@"; do
    case "$flag" in
      -L* | -l* | -Wl,*) [ "$kind" = link ] && printf '%s ' "$flag" ;;
      *) [ "$kind" = compile ] && printf '%s ' "$flag" ;;
    esac
  done
}
# shellcheck disable=SC2086
{
  echo "MPI_CFLAGS := $(split_flags compile $mpi)"
  echo "MPI_LIBS := $(split_flags link $mpi)"
} >"$out"
echo "found: $("$CXX" --version | head -n 1); MPI: $mpi"

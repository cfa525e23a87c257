#!/usr/bin/env bash
# Packs what `make deps` installs (MPI and its launcher, OpenBLAS, GoogleTest, cxxopts, nlohmann-json) and the shared libraries
# that these need into one archive, for a machine with a GPU that has none of them and no network: scripts/gpu_check.sh unpacks
# it there, anywhere. Below 60 MB. Usage: make_gpu_bundle.sh FILE.tar.gz
# The C library and g++ stay the other machine's: it needs a glibc at least as new as the newest symbol used (said at the end).
set -u
out=$1
limit=60000000
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
root=$work/bundle
mkdir -p "$root/bin" "$root/lib" "$root/include" "$(dirname "$out")"

fail() { echo "make_gpu_bundle.sh: error: $1" >&2; exit 1; }
# The file behind a name that the compiler's or the linker's search finds.
find_library() { local file; file=$(g++ "-print-file-name=$1"); [ "$file" != "$1" ] && readlink -f "$file"; }
find_header() { echo "#include <$1>" | g++ -x c++ -E - "${@:2}" 2>/dev/null | sed -n "s,^# [0-9]* \"\(/.*/$1\)\".*,\1,p" | head -n 1; }

launcher=$(command -v mpiexec.hydra || command -v mpirun.mpich) || fail "no MPICH; run make deps"
proxy=$(dirname "$(readlink -f "$launcher")")/hydra_pmi_proxy
[ -x "$proxy" ] || fail "no hydra_pmi_proxy beside $launcher"
cp -L "$launcher" "$root/bin/mpirun" && cp -L "$proxy" "$root/bin/" || exit 1
ln -s mpirun "$root/bin/mpirun.mpich"

mpi_header=$(find_header mpi.h -isystem /usr/include/x86_64-linux-gnu/mpich)
for header in "$mpi_header" "$(find_header gtest/gtest.h)" "$(find_header cxxopts.hpp)" \
  "$(find_header nlohmann/json.hpp)"; do
  [ -n "$header" ] || fail "a header is missing; run make deps"
done
cp "$(dirname "$mpi_header")"/mpi*.h "$root/include/" || exit 1
cp -r "$(dirname "$(find_header gtest/gtest.h)")" "$(dirname "$(find_header nlohmann/json.hpp)")" "$(find_header cxxopts.hpp)" "$root/include/"

mpi=$(find_library libmpich.so) || fail "no libmpich.so; run make deps"
for name in libgtest.a libgtest_main.a; do cp "$(find_library "$name")" "$root/lib/" || fail "no $name; run make deps"; done

# Shared libraries under the names by which programs load them, without those that belong to the C library and the compiler.
needed() { ldd "$@" | sed -n 's,^\t\(lib[^ ]*\) => \(/[^ ]*\).*,\1 \2,p'; }
soname() { objdump -p "$1" | awk '$1 == "SONAME" {print $2}'; }
{
  needed "$launcher" "$proxy" "$mpi"
  echo "$(soname "$mpi") $mpi"
} | sort -u | grep -vE '^lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+)\.so' >"$work/libraries"
while read -r name file; do cp -L "$file" "$root/lib/$name" || exit 1; done <"$work/libraries"
ln -s "$(soname "$mpi")" "$root/lib/libmpich.so"

tar -C "$root" -czf "$out" . || exit 1
bytes=$(stat -c %s "$out")
glibc=$(objdump -T "$root"/bin/hydra_pmi_proxy "$root"/bin/mpirun "$root"/lib/*.so* 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
[ "$bytes" -lt $limit ] || fail "$out has $bytes bytes, more than $limit"
echo "$out: $((bytes / 1000000)) MB, $(wc -l <"$work/libraries") shared libraries, for machines with ${glibc/_/ } or newer"

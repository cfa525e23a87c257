#!/usr/bin/env bash
# Finds nvcc, cuBLASLt and NCCL by compiling and linking a small program against each, and writes what it found to the make
# file $1. Layouts: an installation of NVIDIA's (/usr/local/cuda*, $CUDA_HOME), Debian's packages (/usr/include), pip's
# (site-packages/nvidia/*). Without nvcc or cuBLASLt the product is built for the CPU.
# Environment: CXX, CUDA (0 leaves the GPU out), CUDA_HOME (prefix of a CUDA installation), CUDA_ARCHS ("80 90"), NCCL_HOME
# (prefix of an NCCL installation).
set -u
out=$1
CXX=${CXX:-g++}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

finish() {  # finish MESSAGE: says it; the make file holds what was written so far
  echo "$1"
  exit 0
}
: >"$out"
[ "${CUDA:-}" = 0 ] && finish "CUDA: left out (CUDA=0)"

site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null)
nvcc=
if [ -n "${CUDA_HOME:-}" ]; then
  nvcc=$CUDA_HOME/bin/nvcc
  [ -x "$nvcc" ] || { echo "error: CUDA_HOME=$CUDA_HOME has no bin/nvcc" >&2; exit 1; }
else
  for candidate in "$(command -v nvcc 2>/dev/null)" /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc "$site"/nvidia/*/bin/nvcc; do
    [ -x "$candidate" ] && nvcc=$candidate && break
  done
fi
[ -n "$nvcc" ] || finish "CUDA: no nvcc (CUDA_HOME=DIR names an installation elsewhere): the product is built for the CPU"
root=$(dirname "$(dirname "$(readlink -f "$nvcc")")")

links() {  # links PROGRAM FLAGS..
  printf '%s\n' "$1" >"$work/probe.cpp"
  shift
  "$CXX" -std=c++20 "$work/probe.cpp" -o "$work/probe" "$@" >"$work/log" 2>&1
}

# Pairs "include folder:library folder" that may hold a library of NVIDIA's: those of a prefix, or all.
places() {
  local prefix=$1
  if [ -n "$prefix" ]; then
    for l in lib64 lib lib/x86_64-linux-gnu; do echo "$prefix/include:$prefix/$l"; done
    return
  fi
  for p in "$root" "$root/targets/x86_64-linux" "$root/targets/sbsa-linux"; do
    for l in lib64 lib lib/x86_64-linux-gnu; do
      [ -d "$p/include" ] && [ -d "$p/$l" ] && echo "$p/include:$p/$l"
    done
  done
  echo "/usr/include:/usr/lib/x86_64-linux-gnu"
  for p in "$site"/nvidia/*/; do
    [ -d "$p/include" ] && [ -d "$p/lib" ] && echo "${p}include:${p}lib"
  done
}

# The library itself: libX.so, or a numbered libX.so.N, which is all that pip installs.
library() {
  local file
  for file in "$1/lib$2.so" "$1/lib$2.so".[0-9]*; do
    [ -e "$file" ] && echo "$file" && return 0
  done
  return 1
}

# find_library NAME PROGRAM PREFIX FLAGS..: sets found_include, found_folder, found_file
find_library() {
  local name=$1 program=$2 prefix=$3 place file
  shift 3
  for place in $(places "$prefix"); do
    file=$(library "${place#*:}" "$name") || continue
    if links "$program" -isystem "${place%%:*}" "$@" "$file" "-Wl,-rpath,${place#*:}" "-Wl,-rpath-link,${place#*:}"; then
      found_include=${place%%:*} found_folder=${place#*:} found_file=$file
      return 0
    fi
  done
  return 1
}

runtime_include=$root/include
[ -e "$runtime_include/cuda_runtime.h" ] || runtime_include=$root/targets/x86_64-linux/include
[ -e "$runtime_include/cuda_runtime.h" ] || runtime_include=/usr/include
runtime_folder=
for folder in "$root/lib64" "$root/lib" "$root/targets/x86_64-linux/lib" /usr/lib/x86_64-linux-gnu; do
  if links $'#include <cuda_runtime.h>\nint main() { int n = 0; return cudaGetDeviceCount(&n); }' -isystem "$runtime_include" \
    "-L$folder" -lcudart_static -ldl -lrt -lpthread; then
    runtime_folder=$folder
    break
  fi
done
[ -n "$runtime_folder" ] || finish "CUDA: $nvcc, but no libcudart_static that links: the product is built for the CPU"

find_library cublasLt $'#include <cublasLt.h>\nint main() { cublasLtHandle_t h; return cublasLtCreate(&h); }' "" \
  -isystem "$runtime_include" || finish "CUDA: $nvcc, but no cuBLASLt that links: the product is built for the CPU"
cublas_include=$found_include cublas_folder=$found_folder cublas_file=$found_file

# The GPUs of this machine; where there are none, A100 and H100, and PTX for what comes later. bf16 and cp.async need 8.0.
known=$("$nvcc" --list-gpu-arch 2>/dev/null | sed -n 's/^compute_\([0-9]*\)$/\1/p' | awk '$1 >= 80')
default=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | grep -xF "$known" | sort -un | tr '\n' ' ')
default=${default:-80 90}
for arch in ${CUDA_ARCHS:-}; do
  grep -qx "$arch" <<<"$known" && continue
  echo "error: CUDA_ARCHS: cannot compile for '$arch'; this nvcc and these kernels can for: $(echo $known)" >&2
  exit 1
done

if find_library nccl $'#include <nccl.h>\nint main() { int v; return ncclGetVersion(&v); }' "${NCCL_HOME:-}" \
  -isystem "$runtime_include"; then
  nccl="NCCL: $found_file"
  nccl_flags="-isystem $found_include" nccl_libs="$found_file -Wl,-rpath,$found_folder"
else
  [ -n "${NCCL_HOME:-}" ] && { echo "error: NCCL_HOME=$NCCL_HOME has no usable include/nccl.h and libnccl.so" >&2; exit 1; }
  nccl="NCCL: none" nccl_flags= nccl_libs=
fi
{
  echo "CUDA_NVCC := $nvcc"
  echo "CUDA_CFLAGS := -isystem $runtime_include $([ "$cublas_include" = "$runtime_include" ] || echo "-isystem $cublas_include")"
  echo "CUDA_LIBS := $cublas_file -Wl,-rpath,$cublas_folder -L$runtime_folder -lcudart_static -ldl -lrt -lpthread"
  echo "CUDA_DEFAULT_ARCHS := $default"
  echo "NCCL_CFLAGS := $nccl_flags"
  echo "NCCL_LIBS := $nccl_libs"
} >"$out"
echo "found: $("$nvcc" --version | sed -n 's/^Cuda compilation tools, //p') ($nvcc); cuBLASLt: $cublas_file; $nccl; GPUs compiled for: ${CUDA_ARCHS:-$default}"

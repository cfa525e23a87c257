#!/usr/bin/env bash
# scripts/find_cuda.sh in installations of every layout, made of links to this machine's own; $1 is the make file that it wrote
# for this machine. Ends with "N passed, N failed".
set -u
here=$(dirname "$0")/../..
value() { sed -n "s/^$1 := //p" "$config"; }
config=$1
real_nvcc=$(value CUDA_NVCC)
[ -n "$real_nvcc" ] || { echo "find_cuda_test.sh: error: $config names no nvcc: there is nothing to make layouts of" >&2; exit 2; }
include=$(value CUDA_CFLAGS | sed 's/^-isystem \([^ ]*\).*/\1/')
cublas=$(value CUDA_LIBS | cut -d' ' -f1)
cudart=$(value CUDA_LIBS | sed 's/.* -L\([^ ]*\) .*/\1/')/libcudart_static.a
nccl=$(value NCCL_LIBS | cut -d' ' -f1)
nccl_include=$(value NCCL_CFLAGS | cut -d' ' -f2)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# A command is a script, not a link, since the place that it is called by counts.
nvcc_in() { mkdir -p "$1" && printf '#!/bin/sh\nexec %s "$@"\n' "$real_nvcc" >"$1/nvcc" && chmod +x "$1/nvcc"; }
headers_in() { mkdir -p "$1" && ln -s "$include"/* "$1/" && rm -f "$1/nccl.h"; }
python_with() { mkdir -p "$work/bin" && printf '#!/bin/sh\necho %s\n' "$1" >"$work/bin/python3" && chmod +x "$work/bin/python3"; }

expect() {  # expect NAME TEXT..: runs find_cuda.sh in the present environment; its words and its file hold every TEXT
  local name=$1 output text missing=
  shift
  output=$("$here/scripts/find_cuda.sh" "$work/cuda.mk" 2>&1; cat "$work/cuda.mk")
  for text in "$@"; do
    grep -qF -- "$text" <<<"$output" || missing+=" '$text'"
  done
  if [ -z "$missing" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED %s: no%s in\n%s\n' "$name" "$missing" "$output"
  fi
}

python_with "$work/none"
export PATH=$work/bin:$PATH

# NVIDIA's: /usr/local/cuda/{bin,include,lib64}
prefix=$work/local
nvcc_in "$prefix/bin" && headers_in "$prefix/include" && mkdir "$prefix/lib64"
ln -s "$cublas" "$prefix/lib64/libcublasLt.so" && ln -s "$cudart" "$prefix/lib64/"
CUDA_HOME=$prefix expect "NVIDIA's layout" "CUDA_NVCC := $prefix/bin/nvcc" "$prefix/lib64/libcublasLt.so" "-L$prefix/lib64"

# Debian's: /usr/bin, /usr/include, /usr/lib/x86_64-linux-gnu
prefix=$work/usr
nvcc_in "$prefix/bin" && headers_in "$prefix/include" && mkdir -p "$prefix/lib/x86_64-linux-gnu"
ln -s "$cublas" "$prefix/lib/x86_64-linux-gnu/libcublasLt.so" && ln -s "$cudart" "$prefix/lib/x86_64-linux-gnu/"
CUDA_HOME=$prefix expect "Debian's layout" "$prefix/lib/x86_64-linux-gnu/libcublasLt.so" "-isystem $prefix/include"

# pip's: everything in site-packages/nvidia/cu13/{bin,include,lib}, libraries with numbers only
site=$work/all/site-packages
nvcc_in "$site/nvidia/cu13/bin" && headers_in "$site/nvidia/cu13/include" && mkdir "$site/nvidia/cu13/lib"
ln -s "$cublas" "$site/nvidia/cu13/lib/libcublasLt.so.13" && ln -s "$cudart" "$site/nvidia/cu13/lib/"
python_with "$site"
CUDA_HOME=$site/nvidia/cu13 expect "pip's layout" "$site/nvidia/cu13/lib/libcublasLt.so.13"

# The compiler from one place, cuBLASLt and NCCL from pip's packages of their own.
prefix=$work/compiler site=$work/parts/site-packages
nvcc_in "$prefix/bin" && headers_in "$prefix/include" && rm "$prefix"/include/cublas* && mkdir "$prefix/lib64"
ln -s "$cudart" "$prefix/lib64/"
mkdir -p "$site"/nvidia/{cublas,nccl}/{include,lib}
ln -s "$include"/cublas* "$site/nvidia/cublas/include/" && ln -s "$cublas" "$site/nvidia/cublas/lib/libcublasLt.so.13"
python_with "$site"
CUDA_HOME=$prefix expect "cuBLASLt from pip" "$site/nvidia/cublas/lib/libcublasLt.so.13" "-isystem $site/nvidia/cublas/include"
if [ -n "$nccl" ]; then
  ln -s "$nccl_include/nccl.h" "$site/nvidia/nccl/include/" && ln -s "$nccl" "$site/nvidia/nccl/lib/libnccl.so.2"
  CUDA_HOME=$prefix expect "NCCL from pip" "NCCL: $site/nvidia/nccl/lib/libnccl.so.2" "NCCL_CFLAGS := -isystem $site/nvidia/nccl/include"
  CUDA_HOME=$prefix NCCL_HOME=$site/nvidia/nccl expect "NCCL_HOME" "NCCL: $site/nvidia/nccl/lib/libnccl.so.2"
  # A header without its library, and a library of a similar name, are no NCCL.
  rm "$site/nvidia/nccl/lib/libnccl.so.2" && ln -s "$nccl" "$site/nvidia/nccl/lib/libvncclient.so"
  CUDA_HOME=$prefix NCCL_HOME=$site/nvidia/nccl expect "no NCCL where NCCL_HOME says" "has no usable include/nccl.h and libnccl.so"
fi

# A compiler without cuBLASLt builds for the CPU.
python_with "$work/none"
CUDA_HOME=$prefix expect "no cuBLASLt" "no cuBLASLt that links: the product is built for the CPU"
CUDA_HOME=$work/none expect "no nvcc where CUDA_HOME says" "error: CUDA_HOME=$work/none has no bin/nvcc"
CUDA=0 expect "CUDA=0" "CUDA: left out (CUDA=0)"
CUDA_HOME=$work/usr CUDA_ARCHS="80 999" expect "an architecture that nobody knows" "error: CUDA_ARCHS: cannot compile for '999'"
CUDA_HOME=$work/usr CUDA_ARCHS="80 86" expect "architectures by hand" "GPUs compiled for: 80 86"

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

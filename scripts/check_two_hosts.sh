#!/usr/bin/env bash
# Four ranks on two hosts: namespaces of this machine with a network, a name, processes and shared memory of their own, joined by
# one cable. mpirun starts on the first and reaches the other as it does by ssh. The hash must be that of one rank.
# usage: scripts/check_two_hosts.sh PROGRAM       prints `N passed, N failed`; skipped where namespaces are forbidden
set -u
program=$(realpath "${1:?usage: scripts/check_two_hosts.sh PROGRAM}")
mpirun=$(command -v mpirun.mpich || command -v mpirun)
work=$(mktemp -d)
first=two-hosts-$$-1 second=two-hosts-$$-2 # network namespaces, whose names all of the machine sees
job=
finish() {
  [ -z "$job" ] || kill -9 "$job" 2>/dev/null
  ip netns del "$first" 2>/dev/null
  ip netns del "$second" 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
cd "$work" || exit 1
skip() { echo "skipped: $1"; exit 0; }

for tool in ip unshare; do command -v $tool >/dev/null || skip "no $tool (apt-get install iproute2 util-linux)"; done
"$mpirun" -info 2>/dev/null | grep -qi hydra || skip "$mpirun is not MPICH's"
host="unshare --pid --fork --kill-child --mount-proc --ipc --uts --mount"
ip netns add "$first" 2>why && ip netns add "$second" 2>why && ip netns exec "$second" $host true 2>>why ||
  skip "network namespaces are forbidden here: $(head -n 1 why)"
ip link add cable netns "$first" type veth peer name cable netns "$second" 2>why || skip "no cable between namespaces: $(head -n 1 why)"
ip -n "$first" addr add 10.77.0.1/24 dev cable
ip -n "$second" addr add 10.77.0.2/24 dev cable
for name in "$first" "$second"; do
  ip -n "$name" link set lo up
  ip -n "$name" link set cable up
done
for name in "$first" "$second"; do # the kernel sees the other end a moment later
  for _ in $(seq 100); do ip -n "$name" link show cable | grep -q 'state UP' && break; sleep 0.05; done
done

# In place of ssh: [-x] HOST COMMAND..
cat >ssh <<END
#!/usr/bin/env bash
while [ "\${1#-}" != "\$1" ]; do shift; done
[ "\$1" = 10.77.0.2 ] || { echo "no host \$1" >&2; exit 1; }
shift
exec ip netns exec $second $host sh -c "mount -t tmpfs none /dev/shm; hostname second; \$*"
END
chmod +x ssh

seq 1 4000 >text
"$program" prepare --text text --output tokens.bin >/dev/null || exit 1
train="$program train --train-data tokens.bin --layers 5 --heads 2 --hidden 16 --max-seq-len 8 --seq-len 8 --micro-batch-size 1"
train="$train --threads 1 --partition uniform --steps 5 --accumulation-groups 4"
hash() { sed -n 's/.*"event":"end","parameter_hash":"\([0-9a-f]*\)".*/\1/p' "$1/log.jsonl" 2>/dev/null; }
bytes() { ip netns exec "$first" cat /sys/class/net/cable/statistics/tx_bytes; }
$train --micro-batches 8 --output one >printed 2>&1 || { cat printed; exit 1; }

# MPICH 4.0.2 hangs in MPI_Finalize over tcp (kernels/cpu/README.md): a job is over when its log says so.
run() { # FOLDER OPTIONS..
  ip netns exec "$first" $host sh -c "mount -t tmpfs none /dev/shm; hostname first
    UCX_TLS=tcp,self UCX_NET_DEVICES=cable $mpirun -launcher ssh -launcher-exec $work/ssh -localhost 10.77.0.1 \
    -hosts 10.77.0.1,10.77.0.2 -ppn 2 -n 4 $train --output $*" >printed 2>&1 </dev/null &
  job=$!
  for _ in $(seq 1200); do
    [ -n "$(hash "$1")" ] && break
    kill -0 $job 2>/dev/null || break
    sleep 0.1
  done
  { kill -9 $job; wait $job; } 2>/dev/null # with all that it has started
  job=
}
passed=0 failed=0 number=0
expect() { # OPTIONS..
  local before sent
  number=$((number + 1)) before=$(bytes)
  run "run-$number" "$@"
  sent=$(($(bytes) - before))
  if [ "$(hash "run-$number")" = "$(hash one)" ] && [ $sent -gt 100000 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "$*: hash $(hash "run-$number"), one rank has $(hash one); $sent bytes went over the cable"
    tail -n 5 printed
  fi
}
# A pipeline on each host and what replicas exchange between them; or the other way round; or no replicas.
expect --data-parallel 2 --micro-batches 4 --schedule 1f1b
expect --data-parallel 2 --micro-batches 4 --schedule zb-v --zero 1
expect --data-parallel 2 --micro-batches 4 --schedule breadth-first --chunks 6 --zero 3
expect --data-parallel 2 --micro-batches 4 --schedule dualpipe --zero 2 --rank-order replicas
expect --data-parallel 2 --micro-batches 4 --schedule zb-h1 --zero 2 --rank-order replicas
expect --data-parallel 4 --micro-batches 2 --schedule breadth-first --chunks 12 --zero 3
expect --micro-batches 8 --schedule interleaved --chunks 2
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

#!/usr/bin/env bash
# A SLURM of one node on this machine, for the tests: slurm_node.sh install | start FOLDER | stop FOLDER, as root.
set -euo pipefail

action="$1" folder="${2:-}"
conf="$folder/slurm.conf"

install() {
    apt-get install --yes --no-install-recommends slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge
}

configure() {
    local name
    name="$(hostname -s)"
    cat >"$conf" <<CONF
ClusterName=test
SlurmctldHost=$name(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmctldPort=$PORT
SlurmdPort=$((PORT + 1))
ReturnToService=2
KillWait=5
NodeName=$name NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
}

start() {
    mkdir -p "$folder/state" "$folder/spool"
    dd if=/dev/urandom of="$folder/munge.key" bs=1024 count=1 2>/dev/null
    chmod 400 "$folder/munge.key"
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munged.seed"
    configure
    export SLURM_CONF="$conf"
    slurmctld -f "$conf"
    slurmd -f "$conf"
    for _ in $(seq 60); do
        if [[ "$(sinfo --noheader --format=%t 2>/dev/null)" == idle ]]; then
            return
        fi
        sleep 0.5
    done
    echo "the node did not become idle: $(sinfo 2>&1 | tail -1)" >&2
    tail -n 3 "$folder"/*.log >&2
    exit 1
}

stop() {
    local name
    for name in slurmd slurmctld munged; do
        if [[ -f "$folder/$name.pid" ]]; then
            kill "$(cat "$folder/$name.pid")" 2>/dev/null || true
        fi
    done
}

PORT="${PORT:-16817}"
"$action"

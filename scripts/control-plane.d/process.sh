# The processes of one control plane and the ports they listen on. Sourced by
# scripts/control-plane, which sets $dir, its folder, and has `note`.
# shellcheck shell=bash
# shellcheck disable=SC2154 # $dir is set by the script that sources this

# Starts a command that outlives this script and holds nothing of its caller:
# not its session, standard streams, other descriptors or environment (a proxy
# setting would catch calls to webhooks, an ETCD_* variable changes etcd).
launch() {
    local name=$1 fd
    shift
    log_start=$(stat -c %s "$dir/$name.log" 2>/dev/null || echo 0)
    (
        cd "$dir" || exit
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            # 255 is bash's own and closed on exec.
            if ((fd > 2 && fd != 255)); then
                { exec {fd}>&-; } 2>/dev/null || true
            fi
        done
        exec env -i PATH="$PATH" setsid "$@" </dev/null >>"$dir/$name.log" 2>&1
    ) &
    pid=$!
    printf '%s\n' "$pid" >"$dir/$name.pid"
}

# Prints what the process just launched has written.
new_log() { tail -c "+$((${log_start:-0} + 1))" "$dir/$1.log"; }

# Is `etcd` or `apiserver` of $dir running? Sets $pid. A process id alone proves
# nothing: after a crash or a reboot it may be somebody else's.
running() {
    local words=() word
    { read -r pid <"$dir/$1.pid"; } 2>/dev/null || return 1
    [[ $pid =~ ^[0-9]+$ ]] || return 1
    { mapfile -d '' -t words <"/proc/$pid/cmdline"; } 2>/dev/null || return 1
    [[ ${words[0]:-} == *"$1" ]] || return 1
    for word in "${words[@]}"; do
        [[ $word != "$(mark_of "$1")" ]] || return 0
    done
    return 1
}

# The argument by which a process is known to belong to $dir.
mark_of() {
    case $1 in
    etcd) printf '%s\n' "--data-dir=$dir/etcd" ;;
    apiserver) printf '%s\n' "--cert-dir=$dir/apiserver" ;;
    esac
}

end_apiserver() {
    local signal=$1
    # Without etcd it would go on waiting for it for over a minute.
    running etcd || signal=KILL
    end apiserver "$signal"
}

# Ends `etcd` or `apiserver` of $dir with a signal, by force after 10 s.
end() {
    local name=$1 signal=$2 deadline=$((SECONDS + 10))
    while running "$name"; do
        if [[ -n $signal ]]; then
            kill -s "$signal" "$pid" 2>/dev/null || true
            signal=
        elif ((SECONDS >= deadline)); then
            note "$name (process $pid) did not end in 10 s; killing it"
            signal=KILL
            deadline=$((SECONDS + 10))
        else
            sleep 0.05
        fi
    done
    rm -f "$dir/$name.pid"
}

# Prints a port that nobody uses. It lies below the range from which the kernel
# serves outgoing connections and "any port" requests: in that range, a client
# could take the port while the API server is stopped for a test.
free_port() {
    local low port hex
    { read -r low _ </proc/sys/net/ipv4/ip_local_port_range; } 2>/dev/null || low=32768
    ((low > 20000)) || low=32768
    while :; do
        port=$((10000 + RANDOM % (low - 10000)))
        printf -v hex ':%04X ' "$port"
        if [[ $(sockets) != *"$hex"* ]]; then
            printf '%s\n' "$port"
            return
        fi
    done
}

# Does this process listen on this port? Being able to connect would not tell
# our own etcd from that of another control plane which took the port first.
listens() {
    local hex address state inode
    printf -v hex '%04X' "$2"
    while read -r _ address _ state _ _ _ _ _ inode _; do
        if [[ $state == 0A && $address == *:"$hex" && $(ls -l "/proc/$1/fd" 2>/dev/null) == *"socket:[$inode]"* ]]; then
            return 0
        fi
    done < <(sockets)
    return 1
}

sockets() { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true; }

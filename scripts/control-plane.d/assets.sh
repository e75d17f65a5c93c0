# Finds the binaries of the control plane or builds them. Sourced by
# scripts/control-plane, which has `note` and `die`.
# shellcheck shell=bash

sources=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
readonly sources

# The one place that pins versions is the Go module.
version=$(sed -n 's|^\tk8s.io/kubernetes v\([0-9.]*\).*|\1|p' "$sources/go.mod")
go_minor=$(sed -n 's|^go 1\.\([0-9]*\).*|\1|p' "$sources/go.mod")
minor=${version#*.}
minor=${minor%%.*}
# What older ones lack, a test could need.
oldest_minor=$((minor - 2))
readonly version go_minor minor oldest_minor

# Sets $assets to the folder with the three binaries. A variable and not a
# printed value: the build must run in this shell, where signals reach its trap.
find_assets() {
    if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
        local missing
        missing=$(lacking "$KUBEBUILDER_ASSETS")
        [[ -z $missing ]] ||
            die "KUBEBUILDER_ASSETS is $KUBEBUILDER_ASSETS, which lacks ${missing% };" \
                "put it there or unset the variable"
        assets=$(readlink -f "$KUBEBUILDER_ASSETS")
        return
    fi
    if find_on_path; then
        return
    fi
    find_cache || die "no place for the cache: set HOME or XDG_CACHE_HOME (an absolute path)"
    assets=$cache/control-plane-v$version
    if [[ -n $(lacking "$assets") ]]; then
        build_assets
    fi
}

# Prints the tools that a folder lacks.
lacking() {
    local tool
    for tool in etcd kube-apiserver kubectl; do
        [[ -f $1/$tool && -x $1/$tool ]] || printf '%s ' "$tool"
    done
}

# Sets $cache, our folder below the user's cache.
find_cache() {
    local base=${XDG_CACHE_HOME:-}
    if [[ $base != /* ]]; then
        # A relative one is to be ignored, and Go refuses to work with it.
        unset XDG_CACHE_HOME
        base=${HOME:+$HOME/.cache}
    fi
    [[ -n $base ]] || return 1
    cache=$base/shell-operator
}

find_on_path() {
    local tool found=() text
    for tool in etcd kube-apiserver kubectl; do
        found+=("$(type -P "$tool")") || return 1
    done
    for tool in "${found[@]:1}"; do
        case $tool in
        */kubectl) text=$("$tool" version --client 2>/dev/null) || text= ;;
        *) text=$("$tool" --version 2>/dev/null) || text= ;;
        esac
        if ! [[ $text =~ v1\.([0-9]+)\. ]] || ((BASH_REMATCH[1] < oldest_minor)); then
            note "$tool is not v1.$oldest_minor or newer; not using what is on PATH"
            return 1
        fi
    done
    link_found "${found[@]}"
}

# Sets $assets to one folder for three binaries that may lie in several.
link_found() {
    local tool
    if [[ $1 == /* && ${1%/*} == "${2%/*}" && ${1%/*} == "${3%/*}" ]]; then
        assets=${1%/*}
        return
    fi
    find_cache || die "no place for links to the binaries on PATH: set HOME or XDG_CACHE_HOME (an absolute path)"
    # Named by what it points to: callers with another PATH get another folder.
    assets=$cache/control-plane-path-$(readlink -f "$@" | cksum | cut -d ' ' -f 1)
    mkdir -p "$assets" || die "cannot write to the cache $cache"
    for tool in "$@"; do
        ln -sfn "$(readlink -f "$tool")" "$assets/${tool##*/}"
    done
}

build_assets() {
    go_fits || die "no control plane found, and building one needs Go >= 1.$go_minor:" \
        "install Go, or put etcd, kube-apiserver and kubectl on PATH, or name their folder in KUBEBUILDER_ASSETS"
    mkdir -p "$assets" || die "cannot write to the cache $cache"
    trap end_build EXIT
    lock_build
    # Only an interrupted build leaves these behind.
    rm -rf "$assets"/.part-*
    if [[ -n $(lacking "$assets") ]]; then
        note "building Kubernetes v$version once, into $assets"
        note "on two cores it takes about 6 minutes; Go's caches grow by about 4 GB"
        build 1/3 etcd go.etcd.io/etcd/server/v3 "1 to 2 minutes"
        build 2/3 kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "4 to 5 minutes"
        build 3/3 kubectl k8s.io/kubernetes/cmd/kubectl "half a minute"
        find_keys_tool || die "could not build the tool that makes keys"
        note "built in $SECONDS s"
    fi
    rm -rf "$assets"/.part-*
    exec {build_lock}>&-
    trap - EXIT
}

# Is there a Go that is new enough?
go_fits() {
    local have
    # Asked inside the module, so that Go may fetch the version which that needs.
    have=$(cd "$sources" && GOWORK=off go env GOVERSION 2>/dev/null) || return 1
    [[ $have =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= go_minor))
}

# One build at a time per cache: a second caller waits and then finds the result.
lock_build() {
    local begun=$SECONDS
    exec {build_lock}>"$cache/control-plane.lock"
    until flock -w 15 "$build_lock"; do
        note "waiting for another build in $cache, $((SECONDS - begun)) s so far"
    done
}

# Builds one tool under another name and renames it, so that what has the right name is whole.
build() {
    local step=$1 tool=$2 package=$3 usual=$4
    local part=$assets/.part-$tool begun=$SECONDS next=15
    if [[ -x $assets/$tool ]]; then
        return
    fi
    note "building $tool ($step), usually $usual"
    mkdir -p "$assets/.part-tmp"
    # Go leaves more than 1 GB in its temporary folder when it is killed.
    GOTMPDIR=$assets/.part-tmp run_go "$part" "$package" >"$assets/.part-log" 2>&1 &
    builder=$!
    while kill -0 "$builder" 2>/dev/null; do
        sleep 0.5
        if ((SECONDS - begun >= next)); then
            note "building $tool ($step), $next s so far"
            next=$((next + 15))
        fi
    done
    if ! wait "$builder"; then
        tail -n 15 "$assets/.part-log" >&2
        die "could not build $tool: is the Go module proxy reachable, and is there room on the disk?" \
            "The next run goes on where this one stopped"
    fi
    builder=
    mv -f "$part" "$assets/$tool"
}

end_build() {
    if [[ -n ${builder:-} ]]; then
        # Its whole group: a compiler that goes on would go on writing.
        kill -s TERM -- "-$builder" 2>/dev/null || true
        { wait "$builder" || true; } 2>/dev/null
    fi
    rm -rf "$assets"/.part-*
}

# Replaces the calling subshell by a Go build of one package of our module, in
# a process group of its own.
run_go() {
    local pinned=k8s.io/component-base/version
    cd "$sources" || exit
    # Whatever the caller builds for, these binaries run here. Without C they also
    # run on any other system that shares the cache.
    unset GOOS GOARCH
    export CGO_ENABLED=0 GOWORK=off
    if [[ -z ${HOME:-} ]]; then
        export GOPATH=${GOPATH:-$cache/go}
    fi
    exec setsid nice go build -mod=readonly -buildvcs=false -trimpath -o "$1" -ldflags="-s -w \
        -X $pinned.gitVersion=v$version -X $pinned.gitMajor=1 -X $pinned.gitMinor=$minor" "$2"
}

# Sets $keys_tool, built when it is not in the cache or its source has changed.
find_keys_tool() {
    find_cache || return 1
    keys_tool=$cache/control-plane-keys-$(cksum <"$sources/keys/main.go" | cut -d ' ' -f 1)
    if [[ -x $keys_tool ]]; then
        return
    fi
    go_fits || return 1
    mkdir -p "$cache" || return 1
    (run_go "$keys_tool.$$" ./keys) >&2 || return 1
    mv -f "$keys_tool.$$" "$keys_tool"
}

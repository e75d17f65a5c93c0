# shellcheck shell=bash
#
# hook::run: answers --config, or calls for each binding context the first handler the hook has defined.
# Which names are tried is the table in hook::_read_contexts; handlers run in subshells, so that no variable
# leaks from one context into the next. The first failing handler ends the hook with its status.

# hook::run "$@" is the last line of a hook.
hook::run() {
  if [[ ${1-} == --config ]]; then
    __config__
    exit 0
  fi

  hook::_read_contexts
  # The names below are what hooks written for the original read; they are globals and exports on purpose.
  for ((BINDING_CONTEXT_CURRENT_INDEX = 0; BINDING_CONTEXT_CURRENT_INDEX < CONTEXT_LENGTH; BINDING_CONTEXT_CURRENT_INDEX++)); do
    export BINDING_CONTEXT_CURRENT_INDEX
    export BINDING_CONTEXT_CURRENT_BINDING=${HOOK_BINDINGS[BINDING_CONTEXT_CURRENT_INDEX]}
    # shellcheck disable=SC2034 # for handlers
    BINDING_CONTEXT_CURRENT_TYPE=${HOOK_TYPES[BINDING_CONTEXT_CURRENT_INDEX]}
    HANDLERS=${HOOK_HANDLERS[BINDING_CONTEXT_CURRENT_INDEX]}
    hook::_run_first_available_handler "$HANDLERS"
  done
}

# Prints the names that are tried for the current context, one per line, in order.
hook::_get_possible_handler_names() {
  [[ -n ${HOOK_HANDLERS+set} ]] || hook::_read_contexts
  printf '%s\n' "${HOOK_HANDLERS[${BINDING_CONTEXT_CURRENT_INDEX:-0}]}"
}

# Runs the first name of the list $1 (one per line) that exists, in a subshell.
hook::_run_first_available_handler() {
  local list=$1 handler=
  while [[ -n $list ]]; do
    handler=${list%%$'\n'*}
    if type "$handler" &>/dev/null; then
      # The trace is printed where the failure is, inside; out here it would only be repeated.
      SHELL_LIB_QUIET=1
      (
        SHELL_LIB_QUIET=
        "$handler"
      )
      SHELL_LIB_QUIET=
      return 0
    fi
    [[ $list == *$'\n'* ]] || break
    list=${list#*$'\n'}
  done

  printf "ERROR: Can't find any handler from the list: %s\n" "${1//$'\n'/, }" >&2
  # The line above says all there is to say.
  # shellcheck disable=SC2034 # read by the trap in shell_lib.sh
  SHELL_LIB_QUIET=1
  return 1
}

# Fills CONTEXT_LENGTH and, per context, HOOK_BINDINGS, HOOK_TYPES and HOOK_HANDLERS (names, one per line).
# One jq reads the file for all of them, since starting jq costs more than everything else here.
hook::_read_contexts() {
  HOOK_BINDINGS=() HOOK_TYPES=() HOOK_HANDLERS=()
  if hook::_read_lone_review; then
    return 0
  fi

  local table
  table=$(
    jq -r '
      if type != "array" then error("the binding context is not an array") else .[] end
      | (.binding // "unknown") as $binding
      | ("__on_kubernetes::" + $binding) as $on_kubernetes
      | [
          $binding,
          (.type // ""),
          ( if $binding == "onStartup" then "__on_startup"
            elif .type == "Synchronization" then $on_kubernetes + "::synchronization", $on_kubernetes
            elif .type == "Event" then
              ( if .watchEvent == "Added" then $on_kubernetes + ("::added", "::added_or_modified")
                elif .watchEvent == "Modified" then $on_kubernetes + ("::modified", "::added_or_modified")
                elif .watchEvent == "Deleted" then $on_kubernetes + "::deleted"
                else empty end ),
              $on_kubernetes
            # Before v1.4.14 a group context had no groupName, and its binding was the name of the group.
            elif .type == "Group" then "__on_group::" + (.groupName // $binding)
            elif .type == "Schedule" then "__on_schedule::" + $binding
            elif .type == "Validating" then
              "__on_kubernetes_validating::" + $binding + ("::validating", ""), "__on_validating::" + $binding
            elif .type == "Mutating" then
              "__on_kubernetes_mutating::" + $binding + ("::mutating", ""), "__on_mutating::" + $binding
            elif .type == "Conversion" then
              ( "__on_conversion::" + $binding + "::"
                + ([.fromVersion, .toVersion] | map(sub("/"; ".")) | join("::")) ),
              "__on_conversion::" + $binding
            else empty end ),
          "__main__"
        ]
      | join("\u001f")' <"$BINDING_CONTEXT_PATH"
  )
  hook::_split_table "$table"
}

# Splits the table of jq: a line per context, its fields separated by the unit separator.
hook::_split_table() {
  # Names are taken as they are: they may hold spaces, and a star must not become file names.
  local - IFS=$'\n' lines line fields
  set -f
  # shellcheck disable=SC2206 # splitting is what is wanted
  lines=($1)
  for line in "${lines[@]}"; do
    IFS=$'\x1f'
    # shellcheck disable=SC2206
    fields=($line)
    IFS=$'\n'
    HOOK_BINDINGS+=("${fields[0]}")
    HOOK_TYPES+=("${fields[1]}")
    HOOK_HANDLERS+=("${fields[*]:2}")
  done
  CONTEXT_LENGTH=${#lines[@]}
}

# A review always comes alone. When the file opens with binding and type, as the operator writes it, they are read
# here without any jq: somebody is waiting for the answer. Every other layout goes the long way.
hook::_read_lone_review() {
  local start name
  # Names are at most 253 characters, so the opening is well inside the limit.
  IFS= read -r -N 400 start <"$BINDING_CONTEXT_PATH" || true
  [[ $start =~ ^\[\{\"binding\":\"([a-zA-Z0-9./_-]+)\",\"type\":\"(Validating|Mutating)\", ]] || return 1
  CONTEXT_LENGTH=1
  HOOK_BINDINGS=("${BASH_REMATCH[1]}")
  HOOK_TYPES=("${BASH_REMATCH[2]}")
  name=${HOOK_TYPES[0],,}
  HOOK_HANDLERS=("__on_kubernetes_${name}::${HOOK_BINDINGS[0]}::$name
__on_kubernetes_${name}::${HOOK_BINDINGS[0]}
__on_${name}::${HOOK_BINDINGS[0]}
__main__")
}

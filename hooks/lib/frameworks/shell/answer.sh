# shellcheck shell=bash
#
# Ready-made answers of an admission or conversion hook. Each function writes the whole answer file, so the last call
# counts; those for admission start no process. The original has none of these; a hook that must also run there writes
# the file itself.

# hook::allow: the request may pass.
hook::allow() {
  hook::_answer '{"allowed":true}'
}

# hook::deny <message> [code]: the request is refused and the user reads the message; the code is 403 unless given.
hook::deny() {
  local REPLY
  hook::_json_string "$1"
  if [[ -z ${2-} ]]; then
    hook::_answer "{\"allowed\":false,\"message\":$REPLY}"
  elif [[ $2 =~ ^[1-9][0-9]{2}$ ]]; then
    hook::_answer "{\"allowed\":false,\"status\":{\"code\":$2,\"message\":$REPLY}}"
  else
    printf "Error: hook::deny: '%s' is not an HTTP status code\n" "$2" >&2
    return 1
  fi
}

# hook::phase <name>: what follows belongs to this part of the work (render, syntax, schema, semantic, tests, ...).
hook::phase() {
  HOOK_PHASE=$1
  printf 'PHASE: %s\n' "$1" >&2
}

# hook::fail <message>: ends the hook, from however deep; the request is refused and the user reads the message, if the
# binding has `errors: {from: marked}`. Without that the user reads the exit code and the message is in the log.
hook::fail() {
  local line
  while IFS= read -r line; do
    printf 'FAIL%s: %s\n' "${HOOK_PHASE:+[$HOOK_PHASE]}" "$line" >&2
  done <<<"$1"
  # A stack trace would say nothing that the message does not.
  # shellcheck disable=SC2034 # read by the trap in shell_lib.sh
  SHELL_LIB_QUIET=1
  exit 1
}

# hook::warn [text]...: the request may pass, and the user reads each text as a warning. No text, no warning.
hook::warn() {
  local REPLY text list=
  for text in "$@"; do
    hook::_json_string "$text"
    list+=${list:+,}$REPLY
  done
  hook::_answer "{\"allowed\":true,\"warnings\":[$list]}"
}

# hook::patch <JSON Patch array>: the request may pass after these changes. For mutating bindings only.
hook::patch() {
  hook::_answer "{\"allowed\":true,\"patch\":$1}"
}

# hook::convert <jq filter>: every object of the request, changed by the filter, in the version that is asked for.
hook::convert() {
  context::jq -c ".toVersion as \$to | {convertedObjects: [
    .review.request.objects[]
    | .apiVersion |= if \$to | contains(\"/\") then \$to else sub(\"[^/]*\$\"; \$to) end
    | ($1)]}" >"$CONVERSION_RESPONSE_PATH"
}

# hook::fail_conversion <message>: the objects cannot be converted, and the user reads why.
hook::fail_conversion() {
  local REPLY
  hook::_json_string "$1"
  printf '{"failedMessage":%s}\n' "$REPLY" >"$CONVERSION_RESPONSE_PATH"
}

# Writes $1 as the answer, replacing an earlier one.
hook::_answer() {
  printf '%s\n' "$1" >"${ADMISSION_RESPONSE_PATH:-$VALIDATING_RESPONSE_PATH}"
}

# Sets REPLY to $1 as a JSON string.
hook::_json_string() {
  local backslash=\\ quote=\" text=$1
  text=${text//"$backslash"/"$backslash$backslash"}
  text=${text//"$quote"/"$backslash$quote"}
  text=${text//$'\n'/"${backslash}n"}
  text=${text//$'\r'/"${backslash}r"}
  text=${text//$'\t'/"${backslash}t"}
  # What is left of the control characters means nothing to a reader.
  text=${text//[[:cntrl:]]/ }
  REPLY=$quote$text$quote
}

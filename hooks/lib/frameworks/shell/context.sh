# shellcheck shell=bash
#
# context::*: questions about the binding context of this run. The context is read from $BINDING_CONTEXT_PATH each
# time and held nowhere; every function starts one jq, or two when several contexts came together.
# A path is written with dots: spec.containers.0.image, metadata.labels."app.kubernetes.io/name".
# They are called in conditions, where errexit is off; hence the "|| return" after each step.

# context::global::jq <jq arguments>: jq over the whole array.
context::global::jq() {
  jq "$@" <"$BINDING_CONTEXT_PATH"
}

# context::jq <jq arguments>: jq over the current context.
context::jq() {
  local CONTEXT_ELEMENT
  context::_read_lone_element \
    || CONTEXT_ELEMENT=$(context::global::jq -c ".[${BINDING_CONTEXT_CURRENT_INDEX:-0}]") \
    || return
  # Not a here-string: large ones become temporary files, and there may be no place for those. Not a pipeline: when jq
  # does not read its input to the end, that is no failure.
  jq "$@" < <(printf '%s' "$CONTEXT_ELEMENT" 2>/dev/null || true)
}

# context::get [--required] <path>: the raw value, "null" when there is none; with --required that is an error.
context::get() {
  local required=false jq_path exists dirname basename
  if [[ $1 == --required ]]; then
    required=true
    shift
  fi
  context::_parse_path "$1" || return
  context::jq -r --arg user_path "$1" --argjson required "$required" "
    if \$required and ($exists | not)
    then \"Error: Value \\(\$user_path) required, but doesn't exist\\n\" | halt_error(1)
    else $jq_path end"
}

# context::has <path>: is there such a key or index, whatever its value?
context::has() {
  local jq_path exists dirname basename
  context::_parse_path "$1" || return
  context::jq -e "$exists" >/dev/null
}

# context::is_true, is_false, is_null <path>: is the value exactly that? What is absent is null.
context::is_true() {
  context::_equals "$1" true
}

context::is_false() {
  context::_equals "$1" false
}

context::is_null() {
  context::_equals "$1" null
}

context::_equals() {
  local jq_path exists dirname basename
  context::_parse_path "$1" || return
  context::jq -e "$jq_path == $2" >/dev/null
}

# a."b.c".0.d-e becomes .a."b.c"[0]."d-e"
context::_convert_user_path_to_jq_path() {
  local jq_path exists dirname basename
  context::_parse_path "$1" || return
  printf '%s\n' "$jq_path"
}

# Everything before the last part, empty when there is only one.
context::_dirname() {
  local jq_path exists dirname basename
  context::_parse_path "$1" || return
  printf '%s\n' "$dirname"
}

# The last part.
context::_basename() {
  local jq_path exists dirname basename
  context::_parse_path "$1" || return
  printf '%s\n' "$basename"
}

# Puts the only element of the array into CONTEXT_ELEMENT by taking off the brackets, which saves the jq that would
# cut it out. Fails when there are several, or when the text is not that simple.
context::_read_lone_element() {
  [[ ${CONTEXT_LENGTH-} == 1 ]] || return 1
  # Bytes, not characters: cutting a long text is slow otherwise.
  local LC_ALL=C
  CONTEXT_ELEMENT=$(<"$BINDING_CONTEXT_PATH")
  [[ ${CONTEXT_ELEMENT:0:1} == '[' && ${CONTEXT_ELEMENT: -1} == ']' ]] || return 1
  CONTEXT_ELEMENT=${CONTEXT_ELEMENT:1:-1}
}

# Reads a path into the caller's variables (a command substitution for each would cost a process):
# jq_path, exists (a jq expression that is true when the path exists), dirname and basename.
context::_parse_path() {
  local one_part='^\.("[^"]*"|[^]."[]*(\[[^]]*\])+|[^."]+)((\.[^.].*)?)$'
  local identifier='^([A-Za-z_][A-Za-z0-9_]*)?(\[.*\])?$'
  # Quotes become double. The dot that jq wants in front is welcome too.
  local rest=.${1//\'/\"} parent=. key=\"\"
  [[ $rest != ..* ]] || rest=${rest#.}

  jq_path=. dirname='' basename=''
  while [[ $rest != . && -n $rest ]]; do
    if [[ ! $rest =~ $one_part ]]; then
      printf "Error: '%s' is not a path: check its dots and quotes\n" "$1" >&2
      return 1
    fi
    dirname+=${basename:+${dirname:+.}$basename}
    basename=${BASH_REMATCH[1]}
    rest=${BASH_REMATCH[3]}

    parent=$jq_path
    # All but the first step need their own dot; a path can not open with a bracket.
    [[ $jq_path != . ]] || jq_path=
    if [[ $basename =~ ^[0-9]+$ ]]; then
      key=$basename
      jq_path=${jq_path:-.}"[$key]"
    elif [[ $basename =~ $identifier ]]; then
      key=\"$basename\"
      jq_path+=.$basename
    else
      key=${basename#\"}
      key=\"${key%\"}\"
      jq_path+=.$key
    fi
  done
  # A parent that is absent, or neither map nor list, has nothing.
  exists="(try ($parent | has($key)) catch false)"
}

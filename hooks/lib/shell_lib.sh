# shellcheck shell=bash
#
# The one file a bash hook sources. It switches on strict mode, makes every failure print where it happened,
# and sources each *.sh below frameworks/shell: ours, and whatever libraries users drop in there.
# In the image it is /shell_lib.sh with /frameworks/shell; in the repository the frameworks lie beside this file.
# It is never executed itself and starts no process. Needs bash 4.4 or newer; the context:: functions need jq.

set -Eeuo pipefail
shopt -s inherit_errexit

# Prints the call stack of the command that has just failed, innermost frame last.
# $1 is the status of that command.
shell_lib::_traceback() {
  # With errexit off nothing ends here, so there is nothing to explain. A handler's own subshell has already
  # told its story when the framework sets SHELL_LIB_QUIET.
  [[ $- == *e* && -z ${SHELL_LIB_QUIET-} ]] || return 0
  local status=$1 frame file line text
  printf 'Traceback (most recent call last):\n'
  for ((frame = ${#FUNCNAME[@]} - 1; frame > 0; frame--)); do
    file=${BASH_SOURCE[frame]}
    line=${BASH_LINENO[frame - 1]}
    printf '  File "%s", line %s, in %s\n' "$file" "$line" "${FUNCNAME[frame]}"
    # A hook given to bash with -c has no file to quote from.
    if [[ -r $file ]] && ((line > 0)); then
      mapfile -t -s "$((line - 1))" -n 1 text <"$file"
      [[ ${text[0]-} =~ ^[[:space:]]*(.*)$ ]]
      printf '    %s\n' "${BASH_REMATCH[1]}"
    fi
  done
  printf 'Exiting with status %s\n' "$status"
}
trap 'shell_lib::_traceback "$?" >&2' ERR

# Adds every *.sh below directory $1 to SHELL_LIB_FILES. Links to directories are not followed and names with a
# leading dot are left out, so a mounted ConfigMap gives each file once.
shell_lib::_find() {
  local entry
  for entry in "$1"/*; do
    if [[ -d $entry && ! -L $entry ]]; then
      shell_lib::_find "$entry"
    elif [[ $entry == *.sh && -f $entry ]]; then
      SHELL_LIB_FILES+=("$entry")
    fi
  done
}

SHELL_LIB_DIR=.
[[ ${BASH_SOURCE[0]} != */* ]] || SHELL_LIB_DIR=${BASH_SOURCE[0]%/*}
# A copy of this file that was taken elsewhere still finds the frameworks of the image.
[[ -d $SHELL_LIB_DIR/frameworks/shell ]] || SHELL_LIB_DIR=
SHELL_LIB_FILES=()
# An empty directory is no error here, so failglob waits until the search is over.
shopt -u failglob
shell_lib::_find "$SHELL_LIB_DIR/frameworks/shell"
shopt -s failglob

if ((${#SHELL_LIB_FILES[@]} == 0)); then
  printf "ERROR: %s: no *.sh found in 'frameworks/shell' beside it or in '/frameworks/shell'\n" "${BASH_SOURCE[0]}" >&2
  exit 1
fi
# Sourced out here and not in a function, where every declare of a user's library would become local.
for SHELL_LIB_FILE in "${SHELL_LIB_FILES[@]}"; do
  # shellcheck disable=SC1090 # the point is to take what lies there
  source "$SHELL_LIB_FILE"
done
unset SHELL_LIB_DIR SHELL_LIB_FILE SHELL_LIB_FILES

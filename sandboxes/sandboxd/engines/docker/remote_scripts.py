"""What runs inside a container of a remote engine: POSIX shell, GNU find and coreutils.

Arguments come as arguments, never as text of a script.
"""

from __future__ import annotations

__all__ = ["INIT", "KILL_TREE", "SIGNAL", "START", "START_WITH_INPUT"]

INIT = ("/sbin/docker-init", "-s", "--")
"""Docker's own init, as the subreaper of one command: a daemonised child stays below it."""

# $1 a word that nobody can guess, $2 the working directory or nothing, then the command. Says on
# stderr, first of all: the word, the command's pid, the subreaper's pid; or the word and “cwd”.
_PREPARE = """
word=$1 dir=$2; shift 2
if [ -n "$dir" ]; then
  cd -- "$dir" 2>/dev/null || { echo "$word cwd" >&2; exit 126; }
else
  cd -- "${HOME:-/}" 2>/dev/null || cd /
fi
umask 022
if name=$(id -un 2>/dev/null); then
  USER=${USER-$name} LOGNAME=${LOGNAME-$name}
  export USER LOGNAME
fi
"""

START = f"""{_PREPARE}
echo "$word $$ $PPID" >&2
exec "$@"
"""

# Docker has no way to end a command's input alone over TLS, so it comes in pieces, each after a line
# with its length; 0 ends it. The feeder says its own pid first, and ends with the command.
START_WITH_INPUT = f"""{_PREPARE}
sh -c 'echo $$
while read -r size && [ "$size" -gt 0 ]; do
  dd bs="$size" count=1 iflag=fullblock 2>/dev/null || exit
done' | {{
  read -r feeder
  sh -c 'echo "$0 $$ $1" >&2; shift; exec "$@"' "$word" "$PPID" "$@"
  code=$?
  kill "$feeder" 2>/dev/null
  exit $code
}}
"""

# $1 is the subreaper. It stands still while its tree is killed, so that no orphan gets away.
KILL_TREE = """
exec 2>/dev/null
root=$1
kill -STOP "$root" || exit 0
while :; do
  tree=" $root " grown=1
  while [ $grown = 1 ]; do
    grown=0
    for file in /proc/[0-9]*/stat; do
      read -r line < "$file" || continue
      pid=${line%% *} rest=${line##*) }
      state=${rest%% *} rest=${rest#* }
      parent=${rest%% *}
      [ "$state" = Z ] && continue
      case $tree in *" $pid "*) continue ;; esac
      case $tree in *" $parent "*) tree="$tree$pid " grown=1 ;; esac
    done
  done
  [ "$tree" = " $root " ] && break
  for pid in $tree; do
    [ "$pid" = "$root" ] || kill -KILL "$pid"
  done
done
kill -KILL "$root"
"""

SIGNAL = 'kill -"$1" "$2"'

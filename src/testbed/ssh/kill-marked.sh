#!/bin/sh
# Kills every process whose environment holds the given NAME=VALUE: a command that ran too long, and its children.
# Two passes, because a process may start another one between being seen and being killed.
set -u
mark=$1

for pass in 1 2; do
    for environ in /proc/[0-9]*/environ; do
        pid=${environ#/proc/}
        pid=${pid%/environ}
        [ "$pid" = "$$" ] && continue
        # Processes that ended meanwhile are no failure.
        if tr '\0' '\n' 2>/dev/null <"$environ" | grep -qxF "$mark"; then
            kill -KILL "$pid" 2>/dev/null
        fi
    done
done
exit 0

#!/bin/bash
# Look at the command lines of all processes, those of builds among them, until it is stopped: watch.sh WORDS SEEN.
# WORDS: a file, a word a line. SEEN gets a line each time that one of them is in a command line.
set -u
while true; do
  # Status 1 is that it found nothing, 2 that a process ended meanwhile.
  grep -s -a -h -o -F -f "$1" /proc/[0-9]*/cmdline >> "$2"
  # Nothing tells when a process begins.
  sleep 0.1
done

#!/bin/bash
# Repositories of hccl_demo that trouble a build, on a node: troubles.sh FOLDER. Prints a commit a line: one that does
# not compile, one that fills the disk, one that takes its time. What serves files serves them to git, too.
set -eu
cd "$1"

trouble() { # NAME COMMAND: a repository whose Makefile runs it
  git init --quiet --bare --initial-branch=main "$1.git"
  {
    echo "commit refs/heads/main"
    echo "committer Maker <maker@example.com> 1700000000 +0000"
    echo "data 7"
    echo "trouble"
    echo "M 100644 inline Makefile"
    printf 'data <<END\nall:\n\t%s\nEND\n' "$2"
    echo "M 100644 inline hccl_demo.cpp"
    printf 'data <<END\nint main( {\nEND\n'
  } | git -C "$1.git" fast-import --quiet
  git -C "$1.git" update-server-info
  git -C "$1.git" rev-parse main
}

# shellcheck disable=SC2016  # of the Makefile
trouble broken '$(CXX) -o hccl_demo hccl_demo.cpp'
trouble full 'head -c 20G /dev/zero > hccl_demo'
trouble slow 'echo begun; sleep 20'

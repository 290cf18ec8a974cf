#!/bin/sh
# Resolve the names in the two .in files into pinned requirements, for every platform.
# Uses uv, in an environment of its own, since pip cannot resolve for other machines.
set -eu
TORCH="torch==2.13.0"
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${1:-python3}" -m venv "$tools"
"$tools/bin/python" -m pip install -q uv
compile() { "$tools/bin/uv" pip compile -q --universal --python-version 3.11 --no-header "$@"; }
compile --generate-hashes book/requirements.in -o book/requirements.txt
compile --constraints book/requirements.txt --no-annotate requirements.in -o "$tools/all.txt"
{
  echo "# Written by \`make lock\` from requirements.in: everything, exact. The packages that"
  echo "# the book is made of by name are listed there; the page builder's own are also"
  echo "# locked by hash in book/requirements.txt."
  echo "$TORCH"
  cat "$tools/all.txt"
} > requirements.txt
echo "written: book/requirements.txt, requirements.txt"

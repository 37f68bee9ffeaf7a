#!/bin/sh
# Run tests/test_boris.py with BORIS, in an environment of its own (0.5 GB) that is thrown away.
#   sh tests/boris/make.sh ==8.27.4     another version than the newest that this Python takes
#   MABE_BORIS_KEEP=DIR: keep what BORIS wrote, for tests/boris/written
# BORIS shows films with libraries of the system; on Debian and Ubuntu:
#   apt-get install libmpv2 libpulse-mainloop-glib0 libegl1 libgl1 libxkbcommon0
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install -q --disable-pip-version-check "boris-behav-obs${1:-}"
"$work/env/bin/pip" list 2>/dev/null | grep -i -e boris -e qt -e pyside
cd "$top" && MABE_BORIS="$work/env/bin/python" "${CHECKS:-python}" -m pytest -q -n0 tests/test_boris.py

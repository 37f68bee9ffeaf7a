#!/bin/sh
# Run tests/test_localcloud.py against several versions of modal, each in a virtual
# environment of its own that is thrown away.
#   sh tests/localcloud/matrix.sh                       1.5.5, 1.6.0 and the newest 1.6.x
#   PYTHON=python3.12 sh tests/localcloud/matrix.sh 1.6.4
set -u
tests=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- ==1.5.5 ==1.6.0 '~=1.6.0'
failed=0
for version in "$@"; do
  case $version in [0-9]*) version="==$version";; esac
  "${PYTHON:-python3}" -m venv "$work/env" || exit 1
  "$work/env/bin/pip" install -q --disable-pip-version-check \
    "modal$version" pytest attrs pyyaml numpy psutil || exit 1
  found=$("$work/env/bin/python" -c "from importlib.metadata import version as v; print(v('modal'))")
  last=$("$work/env/bin/python" -m pytest -q -p no:cacheprovider -c "$tests/../pytest.ini" \
    --rootdir "$tests/.." "$tests/test_localcloud.py" >"$work/log" 2>&1; tail -1 "$work/log")
  echo "modal $found ($("$work/env/bin/python" -V)): $last"
  if ! "$work/env/bin/python" -c "import re, sys; sys.exit(bool(re.search('failed|error', sys.argv[1])))" "$last"
  then failed=1; cat "$work/log"; fi
  rm -rf "$work/env"
done
exit $failed

#!/usr/bin/env bash
# Prints a Python that has packages of PyPI: PYTHON if it has them, or else that of FOLDER, where they are installed if they are missing.
# usage: scripts/python_with.sh PYTHON FOLDER PACKAGE...   PYTHON: may be empty
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: scripts/python_with.sh PYTHON FOLDER PACKAGE..." >&2; exit 2; }
folder=$2
python=${1:-$folder/bin/python}
shift 2
modules=$(IFS=,; echo "$*")
if ! "$python" -c "import $modules" 2>/dev/null; then
  /usr/bin/python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet "$@"
  python=$folder/bin/python
fi
echo "$python"

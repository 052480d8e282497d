# shellcheck shell=bash
# Read by the scripts beside it: finds a Python, makes .venv and installs this checkout into it, once.
#
#   AGENT_MAGIC_PYTHON=/path/to/python   use this interpreter as it is; install nothing
#   AGENT_MAGIC_VENV=/path/to/folder     make the environment there instead of in .venv

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${AGENT_MAGIC_VENV:-$ROOT/.venv}
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$@" >&2; }
stop() { say "$@"; exit 1; }

# Tests of a file share kernels, servers and browsers, so a file stays on one worker. Files are begun in their order: the
# browser tests, which take longest, come first. More than four browsers and kernels at once slow one another down. CI has
# a worker more than cores, since many tests wait for a clock: one that a busy machine breaks runs once more there.
WORKERS=logical
[ -z "${CI:-}" ] || WORKERS=${AGENT_MAGIC_WORKERS:-$(($(getconf _NPROCESSORS_ONLN) + 1))}
# shellcheck disable=SC2034 # read by the scripts
PARALLEL=(--numprocesses "$WORKERS" --maxprocesses 4 --dist loadfile --no-loadscope-reorder)

# can_make_environments PYTHON MINOR: a name on the PATH alone proves nothing, for version managers leave commands there
# that only print an error.
can_make_environments() {
  "$1" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, $2))" >/dev/null 2>&1
}

# The first Python >= 3.11 that runs and can make environments.
find_python() {
  local name
  for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
    if can_make_environments "$name" 11; then
      command -v "$name"
      return
    fi
  done
  stop "No Python >= 3.11 that can make environments was found (tried python3.14, python3.13, python3.12, python3.11, python3)." \
    "Install one, on Debian and Ubuntu with: apt-get install python3 python3-venv" \
    "or point AGENT_MAGIC_PYTHON at the interpreter of an environment that has this package installed."
}

# find_minor MINOR...: the first Python 3.MINOR on the PATH, in pyenv or in uv; fails where there is none.
find_minor() {
  local minor name
  for minor in "$@"; do
    for name in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python \
      "$(uv python find "3.$minor" 2>/dev/null)"; do
      if can_make_environments "$name" "$minor"; then
        command -v "$name"
        return
      fi
    done
  done
  return 1
}

# wanted NAMES: set WANTED to what pip is to install: this checkout, with those names that are extras of it, and the
# packages of those that are groups of dependencies, which the pip of older Pythons cannot read.
wanted() {
  local found line
  found=$("$PYTHON" - "$ROOT" "$1" <<'PYTHON'
import sys, tomllib
root, names = sys.argv[1], sys.argv[2].split(",")
with open(f"{root}/pyproject.toml", "rb") as file:
    project = tomllib.load(file)
extras = [name for name in names if name in project["project"]["optional-dependencies"]]
lines = [line for name in names if name not in extras for line in project["dependency-groups"][name]]
print("--editable", f"{root}[{','.join(extras)}]" if extras else root, *lines, sep="\n")
PYTHON
  )
  WANTED=()
  while IFS= read -r line; do WANTED+=("$line"); done <<<"$found"
}

# install ARGUMENTS of pip: uv does in seconds what takes pip minutes. Without it, or where it fails, pip does it.
install() {
  if command -v uv >/dev/null && uv pip install --quiet --python "$PYTHON" "$@"; then return; fi
  "$PYTHON" -m pip install --quiet "$@"
}

# use_python NAMES [CONSTRAINTS]: set PYTHON to an interpreter that has this checkout, and the extras and groups of
# dependencies with these names, installed.
use_python() {
  local extras=$1 constraints=${2:-}
  if [ -n "${AGENT_MAGIC_PYTHON:-}" ]; then
    PYTHON=$AGENT_MAGIC_PYTHON
    return
  fi
  PYTHON=$VENV/bin/python
  # Tests start hundreds of kernels, and one that has to compile its modules needs three times as long.
  export PYTHONPYCACHEPREFIX=$VENV/pycache
  unset PYTHONDONTWRITEBYTECODE
  if ! "$PYTHON" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    local base=${BASE_PYTHON:-}
    [ -n "$base" ] || base=$(find_python)
    say "Making ${VENV#"$ROOT"/} with $("$base" --version)"
    "$base" -m venv --clear "$VENV" || stop "'$base -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv"
  fi
  local state extra complete=yes
  state="$ROOT $(cd "$ROOT" && cat pyproject.toml ${constraints:+"$constraints"} | cksum)"
  for extra in ${extras//,/ }; do
    [ "$(cat "$VENV/.has-$extra" 2>/dev/null)" = "$state" ] || complete=
  done
  [ -z "$complete" ] || return 0
  say "Installing agent-magic and what $extras needs into ${VENV#"$ROOT"/} (about a minute the first time)"
  wanted "$extras"
  install "${WANTED[@]}" ${constraints:+--constraint "$ROOT/$constraints"} \
    || stop "The installation failed; the lines above say why. Run this script again to try again."
  for extra in ${extras//,/ }; do
    printf '%s' "$state" >"$VENV/.has-$extra"
  done
}

# need MODULE...: stop with the way to install it where a module is missing (only AGENT_MAGIC_PYTHON can lack one).
need() {
  local extras=$1 module
  shift
  for module in "$@"; do
    "$PYTHON" -c "import $module" >/dev/null 2>&1 && continue
    wanted "$extras"
    stop "$PYTHON has no module '$module'. Install it with: $PYTHON -m pip install$(printf ' %q' "${WANTED[@]}")"
  done
}

# run_pytest ARGUMENTS: without a key, on kernels of this environment, and without a file left behind.
run_pytest() {
  cd "$ROOT" || exit
  unset ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN
  export JUPYTER_PREFER_ENV_PATH=1 JUPYTER_PLATFORM_DIRS=1 AGENT_MAGIC_LEDGER="${AGENT_MAGIC_LEDGER:-:memory:}"
  exec "$PYTHON" -m pytest "$@"
}

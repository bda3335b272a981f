# Sourced by the scripts beside it: saying what goes on, and how long it takes.
# shellcheck shell=bash

# One line on standard error.
say() { printf '%s\n' "$*" >&2; }

# Ends the script with a message.
die() {
  say "error: $*"
  exit 1
}

# `75` reads as `1m15s`.
elapsed() {
  if (($1 >= 60)); then printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); else printf '%ds' "$1"; fi
}

# Waits for a background process and says every few seconds that it still runs: watch PID WHAT [COMMAND...].
# COMMAND prints what there is to say beside the time.
watch() {
  local pid=$1 what=$2 begun=$SECONDS said=$SECONDS
  shift 2
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - said >= 5)); then
      said=$SECONDS
      say "   $what ... $(elapsed $((SECONDS - begun)))$("${@:-:}")"
    fi
  done
  wait "$pid"
}

# Installs the Debian packages that are missing; needs root for that.
packages() {
  local package missing=()
  for package in "$@"; do
    [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null || die "missing: ${missing[*]}; install them"
  ((EUID == 0)) || die "missing: ${missing[*]}; install them, or run as root"
  say "   installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  local install=(apt-get install --yes --no-install-recommends "${missing[@]}")
  { "${install[@]}" >/dev/null 2>&1 || { apt-get update && "${install[@]}"; } >&2; } || die "apt-get failed"
}

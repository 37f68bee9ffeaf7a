"""Volumes appear at their mount paths: bind mounts in a private namespace, or symlinks.

With namespaces nothing of this is seen outside the container. The symlinks are real, so
two containers with one mount path get in each other's way: tests then use paths of
their own.
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

# A new root on tmpfs that shows all of the old one, plus the volumes; then chroot.
ENTER = r"""
set -e
N="$LC_NEWROOT"; mkdir -p "$N"; mount -t tmpfs tmpfs "$N"
for d in /* /.[!.]*; do
  [ -e "$d" ] || continue
  if [ -L "$d" ]; then cp -P "$d" "$N$d"
  elif [ -d "$d" ]; then mkdir -p "$N$d"; mount --rbind "$d" "$N$d"; fi
done
while [ "$1" != "--" ]; do mkdir -p "$N$2"; mount --bind "$1" "$N$2"; shift 2; done
shift; exec chroot "$N" /bin/sh -c 'cd "$LC_ROOT"; exec "$@"' sh "$@"
"""


def possible():
    "Whether this machine lets us make a mount namespace."
    if sys.platform != "linux" or shutil.which("unshare") is None: return False
    return subprocess.run(_unshare() + ["true"], capture_output=True).returncode == 0


def _unshare(): return ["unshare", "-Urm" if os.getuid() else "-m"]


def command(copies, run):
    "`run`, in a namespace where each copy lies at its mount path."
    pairs = [part for copy in copies for part in (str(copy.folder), copy.mount_path)]
    return [*_unshare(), "/bin/sh", "-c", ENTER, "sh", *pairs, "--", *run]


def make_links(copies):
    "Symlinks at the mount paths; an earlier link is replaced, a real folder is not."
    for copy in copies:
        path = Path(copy.mount_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink(): path.unlink()
        path.symlink_to(copy.folder)
    return copies


def remove_links(copies):
    "Only the links that still are ours."
    for copy in copies:
        path = Path(copy.mount_path)
        if path.is_symlink() and path.readlink() == copy.folder: path.unlink()

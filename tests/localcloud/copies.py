"""A container works on its own copy of a volume, as on Modal.

What it writes is invisible until a commit; what others commit is invisible until a
reload; the last commit of a file wins. `seen` is what both sides agreed on last, so
that only changes travel and a file that is merely old never overwrites a newer one.
"""
import contextlib
import os
import shutil


def tree(root, recursive=True):
    "Relative path -> (mtime in ns, bytes), or None for a folder. Links are left out."
    found, folders = {}, [""]
    for under in folders: # which grows; what the container takes away meanwhile is passed over
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), \
                os.scandir(root/under) as entries:
            for entry in entries:
                name = f"{under}/{entry.name}" if under else entry.name
                if entry.is_dir(follow_symlinks=False):
                    found[name] = None
                    if recursive: folders.append(name)
                elif entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        stat = entry.stat(follow_symlinks=False)
                        found[name] = stat.st_mtime_ns, stat.st_size
    return found


LARGEST = 2**32 # Bytes of a file that is carried; a sparse one would fill the disk


def carry(source, target, seen):
    "Bring the changes of `source` since `seen` to `target`; returns what there is now."
    now = tree(source)
    for name, stat in list(now.items()):
        if name in seen and seen[name] == stat: continue
        if stat and stat[1] > LARGEST: continue
        if stat is None: (target/name).mkdir(parents=True, exist_ok=True)
        elif not _replace(source/name, target/name): del now[name]
        else: # what was copied, which may be more than there was a moment ago
            stat = (target/name).stat()
            now[name] = stat.st_mtime_ns, stat.st_size
    for name in sorted(seen.keys() - now.keys(), reverse=True):
        with contextlib.suppress(OSError):
            (target/name).rmdir() if seen[name] is None else (target/name).unlink()
    return now


def _replace(source, target):
    "Copy in one step; False if the container has just taken the file away."
    part = target.with_name(target.name + ".part~")
    target.parent.mkdir(parents=True, exist_ok=True)
    try: shutil.copy2(source, part)
    except FileNotFoundError: return False
    os.replace(part, target)
    return True


class Copy:
    "What one container has of one volume."
    def __init__(self, volume, folder, mount_path):
        self.volume, self.folder, self.mount_path = volume, folder, mount_path
        folder.mkdir()
        self.seen = {}
        self.reload()

    def reload(self): self.seen = carry(self.volume.folder, self.folder, self.seen)

    def commit(self): self.seen = carry(self.folder, self.volume.folder, self.seen)

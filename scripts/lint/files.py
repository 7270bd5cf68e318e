"""The files the gates look at: tracked ones and new ones that git does not ignore."""

import os
import subprocess
from pathlib import Path

# Where there is no git (an unpacked archive), these folders are left out by name.
_GENERATED = (".git", ".venv", "build", "runs", "dist", "__pycache__", ".pytest_cache", ".cache")

CPP = (".h", ".hpp", ".cpp", ".cu", ".cuh")


def listed(root):
    """Paths relative to `root`, sorted; only files that exist."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        inside = subprocess.run(command[:3] + ["rev-parse", "--show-prefix"], capture_output=True, text=True)
        # A folder inside somebody else's checkout is not ours to ask git about.
        if inside.returncode == 0 and inside.stdout.strip() == "":
            names = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
            return sorted(Path(n) for n in set(names) if n and (root / n).is_file())
    except FileNotFoundError:
        pass
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in _GENERATED and not f.startswith("build-") and not f.endswith(".egg-info")]
        found += [(Path(folder) / n).relative_to(root) for n in names]
    return sorted(found)


def text_of(path):
    """The file's text, or None for a binary file."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    return data.decode("utf-8", errors="replace")


def finish(gate, faults, checked):
    """Prints the faults, one a line, and the verdict; returns the exit code."""
    for fault in faults:
        print(fault)
    print(f"{gate}: {checked} files, {len(faults)} fault{'' if len(faults) == 1 else 's'}")
    return 1 if faults else 0

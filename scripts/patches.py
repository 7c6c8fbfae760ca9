"""The patch series over the pinned llama.cpp: apply, refresh, check and bump. Needs git and Python, nothing else.

    patches.py apply DIR [--source SOURCE]   the patched source in DIR, remade only when pin, source or series changed
    patches.py apply DIR --git               a repository of all of llama.cpp: tag `pin`, then one commit a patch
    patches.py refresh DIR                   patches/ from the commits after tag `pin` in such a repository
    patches.py check                         the series is well-formed, applies, and refresh reproduces it
    patches.py bump DIR|COMMIT               which patches apply to another llama.cpp

SOURCE: nothing (the package index), `git`, or the directory of a checkout, which is copied.
"""

import argparse
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from fetch_llama_cpp import ROOT, SourceError, clone, obtain, read_pin
from patch_series import (
    PATCHES,
    PatchError,
    apply_patch,
    commit_series,
    export_series,
    header_faults,
    listed,
    series_faults,
)

STAMP = ".llama-eagle-stamp"
NEXT = """
What to do: python scripts/patches.py apply WORK --git makes a repository of the patches that apply; correct the
patch there, commit, and write it back with python scripts/patches.py refresh WORK."""


def tree_digest(directory: Path) -> str:
    """A hash over the names and contents of all files."""
    digest = hashlib.sha256()
    for path in sorted(p for p in directory.rglob("*") if p.is_file() and p.name != STAMP):
        digest.update(path.relative_to(directory).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def stamp_of(source: str, clean: Path | None) -> str:
    """What the patched tree depends on: the pin (or the checkout's content), the series and every patch."""
    digest = hashlib.sha256((ROOT / "LLAMA_CPP_VERSION").read_bytes())
    digest.update((tree_digest(clean) if clean else source).encode())
    for name in listed():
        digest.update(name.encode() + (PATCHES / name).read_bytes())
    return digest.hexdigest()


def sync(fresh: Path, target: Path) -> None:
    """Makes `target` equal to `fresh`, touching only files that differ, so that a rebuild compiles little."""
    names = {p.relative_to(fresh) for p in fresh.rglob("*") if p.is_file()}
    for old in [p for p in target.rglob("*") if p.is_file() and p.relative_to(target) not in names]:
        old.unlink()
    for name in sorted(names):
        path = target / name
        if path.is_file() and path.read_bytes() == (fresh / name).read_bytes():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(fresh / name, path)


def apply_all(directory: Path) -> None:
    for name in listed():
        fault = apply_patch(PATCHES / name, directory)
        if fault:
            raise PatchError(f"patches/{name} does not apply:\n{fault}{NEXT}")


def apply(target: Path, source: str) -> None:
    """The patched source in `target`; its stamp says whether anything has to be done."""
    with tempfile.TemporaryDirectory() as scratch:
        clean = Path(scratch) / "llama.cpp"
        checkout = source not in ("", "git")
        if checkout:
            obtain(read_pin(), source, clean)
        stamp = stamp_of(source, clean if checkout else None)
        kept = target / STAMP
        if kept.is_file() and kept.read_text("utf-8") == stamp:
            return
        kept.unlink(missing_ok=True)
        if not checkout:
            obtain(read_pin(), source, clean)
        apply_all(clean)
        sync(clean, target)
        kept.write_text(stamp, "utf-8")
    print(f"llama.cpp with {len(listed())} patches is in {target}")


def apply_git(target: Path, source: str) -> None:
    """A repository to edit the patches in; stops at the first patch that does not apply, leaving the ones before it."""
    obtain(read_pin(), source, target, everything=True)
    commit_series(target, f"llama.cpp {read_pin().commit}")
    print(f"{target}: edit, commit after tag `pin`, then run scripts/patches.py refresh {target}")


def refresh(worktree: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        names = export_series(worktree, Path(scratch))
        for name in names:
            faults = header_faults(Path(scratch) / name)
            if faults:
                raise PatchError(f"commit of {name}: " + "; ".join(faults))
        for old in PATCHES.glob("*.patch"):
            old.unlink()
        for name in names:
            shutil.copyfile(Path(scratch) / name, PATCHES / name)
    (PATCHES / "series").write_bytes("".join(name + "\n" for name in names).encode())
    print(f"{len(names)} patches written; name new ones in patches/README.md")


def check(source: str) -> None:
    """Raises PatchError with every fault found."""
    faults = series_faults()
    for name in listed():
        faults += [f"patches/{name}: {fault}" for fault in header_faults(PATCHES / name)]
    if faults:
        raise PatchError("\n".join(faults))
    with tempfile.TemporaryDirectory() as scratch:
        tree, again = Path(scratch) / "llama.cpp", Path(scratch) / "again"
        obtain(read_pin(), source, tree)
        commit_series(tree, "pin")
        again.mkdir()
        names = export_series(tree, again)
        if names != listed():
            raise PatchError(f"refresh would write the series {names}, patches/series has {listed()}")
        for name in names:
            if (again / name).read_bytes() != (PATCHES / name).read_bytes():
                raise PatchError(f"patches/{name} is not what refresh writes: do not edit patches by hand.{NEXT}")
    print(f"{len(names)} patches apply to llama.cpp {read_pin().commit[:9]}, and refresh reproduces them")


def bump(revision: str) -> None:
    """Tries each patch on another llama.cpp; one that fails is left out, so those after it may fail because of it."""
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "llama.cpp"
        if Path(revision).is_dir():
            obtain(read_pin(), revision, tree)
        else:
            clone(read_pin().repository, revision, tree)
        for name in listed():
            fault = apply_patch(PATCHES / name, tree)
            failed += bool(fault)
            print(f"{'FAILS  ' if fault else 'applies'} {name}" + (f"\n{fault}" if fault else ""))
    if failed:
        raise PatchError(f"{failed} of {len(listed())} patches do not apply to {revision}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("apply", "refresh", "check", "bump"):
        command = commands.add_parser(name)
        if name != "check":
            command.add_argument("where", metavar="DIR|COMMIT" if name == "bump" else "DIR")
        if name in ("apply", "check"):
            command.add_argument("--source", default="", help="empty, `git` or the directory of a checkout")
        if name == "apply":
            command.add_argument("--git", action="store_true", help="make a git repository to edit the patches in")
    args = parser.parse_args()
    try:
        if args.command == "apply":
            (apply_git if args.git else apply)(Path(args.where), args.source)
        elif args.command == "refresh":
            refresh(Path(args.where))
        elif args.command == "check":
            check(args.source)
        else:
            bump(args.where)
    except (PatchError, SourceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Patch files and git: their order, their headers, and the way from a patch to a commit and back.

Knows nothing of where llama.cpp comes from.
"""

import os
import re
import subprocess
from pathlib import Path

PATCHES = Path(__file__).resolve().parents[1] / "patches"
AUTHOR = "llama-eagle developers <llama-eagle@localhost>"
DATE = "Mon, 30 Nov 2026 00:00:00 +0000"
# the configuration of whoever runs this must not change a byte
SETTINGS = (
    "-c user.email=llama-eagle@localhost -c commit.gpgSign=false -c core.autocrlf=false -c core.fileMode=true "
    "-c gc.auto=0 -c core.hooksPath= -c safe.directory=*"
).split() + ["-c", "user.name=llama-eagle developers"]
FORMAT = (
    "format-patch --quiet --zero-commit --no-signature --no-numbered --full-index --no-stat --no-renames --no-ext-diff "
    "--no-textconv --no-color --diff-algorithm=myers --unified=3 --no-thread --no-cover-letter --no-base "
    "--subject-prefix=PATCH"
).split()


class PatchError(Exception):
    """The series or one of its patches is wrong; the text names it and says what to do."""


def listed() -> list[str]:
    """The names of patches/series in order."""
    lines = (PATCHES / "series").read_text("utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def series_faults() -> list[str]:
    names, files = listed(), {path.name for path in PATCHES.glob("*.patch")}
    faults = [f"patches/series: {name} is listed twice" for name in sorted(set(names)) if names.count(name) > 1]
    faults += [f"patches/series lists {name}, which is missing" for name in names if name not in files]
    faults += [f"patches/{name} is not in patches/series" for name in sorted(files - set(names))]
    index = (PATCHES / "README.md").read_text("utf-8")
    return faults + [f"patches/README.md does not mention {name}" for name in names if name not in index]


def header_faults(patch: Path) -> list[str]:
    """What the mailbox header of a patch lacks: sender, date, subject, a reason, upstream status, when it can go."""
    if not patch.is_file():
        return []
    text = patch.read_text("utf-8")
    head = re.split(r"^(?:---|diff --git .*)$", text, maxsplit=1, flags=re.MULTILINE)[0]
    fields, _, body = head.partition("\n\n")
    wanted = ("From", "Date", "Subject")
    faults = [f"no `{name}:` line" for name in wanted if not re.search(f"^{name}: .", fields, re.M)]
    if not text.startswith("From 0000000000000000000000000000000000000000 "):
        faults.append("not a mailbox patch (write it with refresh)")
    if len(body.split("Forwarded:")[0].strip()) < 40:
        faults.append("the message does not say why")
    for name in ("How tested", "Forwarded", "Can go"):
        if not re.search(f"^{name}: .", body, re.M):
            faults.append(f"the message has no `{name}:` paragraph")
    return faults


def git(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    environment |= {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
    # a repository around the tree (our own) must not be taken for the tree's
    environment["GIT_CEILING_DIRECTORIES"] = str(cwd.resolve().parent)
    command = ["git", *SETTINGS, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", check=False)


def git_or_fail(*arguments: str, cwd: Path) -> str:
    done = git(*arguments, cwd=cwd)
    if done.returncode != 0:
        raise PatchError(f"git {arguments[0]} failed in {cwd}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def apply_patch(patch: Path, directory: Path) -> str:
    """Patches the files below `directory`, all or none; returns git's complaint, empty when the patch applied."""
    done = git("apply", "--whitespace=nowarn", str(patch.resolve()), cwd=directory)
    return "" if done.returncode == 0 else done.stderr.strip()


def commit_series(directory: Path, message: str) -> None:
    """Makes a repository of a clean source: one commit tagged `pin`, then one for each patch."""
    git_or_fail("init", "--quiet", "--initial-branch=patches", cwd=directory)
    git_or_fail("add", "--all", "--force", ".", cwd=directory)
    git_or_fail("commit", "--quiet", "--no-verify", f"--message={message}", cwd=directory)
    git_or_fail("tag", "pin", cwd=directory)
    for name in listed():
        done = git("am", "--quiet", "--keep-cr", str(PATCHES / name), cwd=directory)
        if done.returncode != 0:
            git("am", "--abort", cwd=directory)
            said = (done.stderr + done.stdout).strip()
            raise PatchError(f"patches/{name} does not apply; {directory} holds those before it:\n{said}")


def export_series(worktree: Path, target: Path) -> list[str]:
    """Writes the commits after tag `pin` as patches with one sender and date; returns their names in order."""
    if git("status", "--porcelain", "--untracked-files=no", cwd=worktree).stdout.strip():
        raise PatchError(f"{worktree} has changes that are not committed")
    git_or_fail(*FORMAT, "--output-directory", str(target.resolve()), "pin..HEAD", cwd=worktree)
    names = sorted(path.name for path in target.glob("*.patch"))
    for name in names:
        text = (target / name).read_bytes().decode("utf-8")
        text = re.sub(r"^From: .*$", f"From: {AUTHOR}", text, count=1, flags=re.MULTILINE)
        text = re.sub(r"^Date: .*$", f"Date: {DATE}", text, count=1, flags=re.MULTILINE)
        (target / name).write_bytes(text.encode("utf-8"))
    return names

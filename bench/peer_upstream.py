"""One answer of llama.cpp's own programs: plain decoding, or its chain of EAGLE-3 drafts. Reads what they print."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PLAIN = {
    "prompt": r"prompt eval time = .*?/\s*(\d+) tokens",
    "ms": r"(?<!prompt )eval time =\s*([\d.]+) ms /",
    "steps": r"(?<!prompt )eval time =\s*[\d.]+ ms /\s*(\d+) runs",
}
_CHAIN = {
    "prompt": r"encoded\s+(\d+) tokens in",
    "s": r"decoded\s+\d+ tokens in\s+([\d.]+) seconds",
    "emitted": r"n_predict\s*=\s*(\d+)",
    "accepted": r"n_accept\s*=\s*(\d+)",
}


@dataclass(frozen=True)
class Config:
    """How upstream decodes. n_max 0: plain, else the longest chain, cut where its probability falls below p_min."""

    flash_attn: str
    threads: int
    n_max: int = 0
    p_min: float = 0.0

    @property
    def name(self) -> str:
        """Unique, and readable in a table."""
        machine = f"fa {self.flash_attn} t {self.threads}"
        return f"plain {machine}" if not self.n_max else f"chain {self.n_max} p {self.p_min:g} {machine}"


@dataclass(frozen=True)
class Spoken:
    """What an answer took. steps: decodes behind the prefill; emitted: their tokens."""

    prompt_tokens: int
    tokens_per_s: float
    steps: int
    emitted: int


@dataclass(frozen=True)
class Upstream:
    """The programs, the two files, and how much is decoded."""

    folder: Path
    model: Path
    draft: Path
    n_ctx: int
    max_tokens: int

    def command(self, config: Config, prompt: Path) -> list[str]:
        """The command line of an answer; `prompt` holds text that a template was applied to."""
        program = "llama-speculative-simple" if config.n_max else "llama-completion"
        line = [str(self.folder / program), "-m", str(self.model), "-f", str(prompt), "--no-escape", "--temp", "0"]
        line += ["-n", str(self.max_tokens), "-c", str(self.n_ctx), "-t", str(config.threads), "-fa", config.flash_attn]
        if not config.n_max:
            return [*line, "-no-cnv"]
        chain = ["--spec-draft-n-max", str(config.n_max), "--spec-draft-p-min", str(config.p_min)]
        return [*line, "-md", str(self.draft), "--spec-type", "draft-eagle3", *chain]

    def answer(self, config: Config, prompt: Path) -> Spoken:
        """Runs a program. Raises SystemExit with the end of its output where it fails."""
        command = self.command(config, prompt)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        output = (done.stdout + done.stderr).decode("utf-8", "replace")
        found = spoken(output, config) if done.returncode == 0 else None
        if found is None:
            raise SystemExit(f"error: {' '.join(command)} (status {done.returncode}):\n{output[-2000:]}")
        return found


def spoken(output: str, config: Config) -> Spoken | None:
    """The figures in a program's output, or None where one is missing.

    Of plain decoding the time in decodes alone, of the chain its whole loop: what the programs call their speed.
    """
    last = {name: re.findall(pattern, output) for name, pattern in (_CHAIN if config.n_max else _PLAIN).items()}
    if not all(last.values()):
        return None
    number = {name: float(values[-1]) for name, values in last.items()}  # the text may hold such words, too
    prompt = int(number["prompt"])
    if not config.n_max:
        steps = int(number["steps"])
        return Spoken(prompt, 1000 * steps / number["ms"] if number["ms"] else 0.0, steps, steps)
    emitted = int(number["emitted"])
    steps = emitted - int(number["accepted"])
    return Spoken(prompt, emitted / number["s"] if number["s"] else 0.0, steps, emitted)

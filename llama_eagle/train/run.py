"""The stages in order, each resumable: generate, features, fit, export, evaluate.

The first of several processes does all stages but `fit`, for which the others wait.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError, TrainingError
from ..gguf_files.identity import file_identity
from ..gguf_files.model_header import metadata_of, model_header
from . import draft_vocab, saved_fit
from . import plan as plans
from .answers import Answers
from .card import Facts, card
from .evaluate import Gain, evaluate
from .example import Text
from .examples import Examples
from .export import write_checkpoint, write_gguf
from .fit import Fit, Report
from .folder import Folder
from .group import Group
from .head import Head
from .judge import Judge, held_out
from .lines import read_lines
from .plan import Plan
from .predict import Foretold
from .progress import Progress, Say
from .shape import shape_for
from .source import Wanted
from .start import head_of_checkpoint, head_of_target, with_vocabulary
from .workers import Work, written

SAVE_EVERY = 240.0  # seconds: what a killed run loses of fitting
_JUDGE_EVERY = 0.05  # of the training
_JUDGED_AT_A_TIME = 16
_JUDGED_TEXTS = 8  # meanwhile; in the end all that are held out


class Training:
    """A folder in which a head is trained. Raises InputError for one that holds a training, unless `resume`."""

    def __init__(self, folder: Path, target: Path, given: dict[str, Any], resume: bool, say: Say) -> None:
        self.folder, self.target = Folder(folder), target
        self.group = Group()
        self.say: Say = say if self.group.first else lambda text: None
        self.plan = self._planned(given, resume)
        self.shape = shape_for(target, self.plan.layers)
        self.plan = replace(self.plan, layers=self.shape.layers)
        if self.group.first:
            self.plan.save(self.folder.plan)

    def _planned(self, given: dict[str, Any], resume: bool) -> Plan:
        identity = file_identity(self.target)
        known = self.folder.plan.exists()
        if known and not resume:
            raise InputError(f"{self.folder.path} holds a training: add --resume to go on, or choose another -o")
        if known:
            plan = plans.resumed(plans.load(self.folder.plan), {**given, "identity": identity})
        else:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            plan = Plan(**{**given, "target": self.target.name, "identity": identity})
        self.group.wait()  # all have seen the folder as it was
        return plan

    def run(self) -> dict[str, Any]:
        """All stages. Returns the report, which is in report.json, too."""
        with self.folder.clear_errors():
            if self.group.first:
                self._generate()
            self.group.wait()
            texts = Answers(self.folder.answers).texts
            with Examples(self.folder, self.plan, self.target, self.shape, texts) as examples:
                if self.group.first:
                    examples.store(self.say)
                self.group.wait()
                held = self._held_out(texts)
                fit = self._fit(texts, examples, held)
                report = self._finish(fit, examples, held) if self.group.first else {}
            self.group.wait()
            self.group.close()
        return report

    def _engine_options(self) -> dict[str, Any]:
        plan = self.plan
        parallel = min(plan.parallel, _JUDGED_AT_A_TIME)
        return {"n_parallel": parallel, "n_ctx": parallel * plan.length, "n_threads": plan.threads}

    def _generate(self) -> None:
        plan, answers = self.plan, Answers(self.folder.answers)
        if answers.tokens < plan.tokens:
            wanted = Wanted(plan.tokens, plan.length, plan.prompts, plan.seed)
            work = Work(self.target, self.shape.layers, plan.parallel, plan.threads, plan.workers, wanted)
            with (
                Examples(self.folder, plan, self.target, self.shape, answers.texts) as examples,
                written(work, list(answers.words)) as found,
            ):
                answers.generate(found, wanted, lambda new: examples.add(new.text, new.computed), self.say)
        if len(answers.texts) < 2:
            raise TrainingError(f"{len(answers.texts)} answers are too few to train on: raise --tokens or give prompts")

    def _held_out(self, texts: Sequence[Text]) -> list[int]:
        """The same texts whatever is added later: a head must not be judged by what it was trained on."""
        if self.group.first and not self.folder.held_out.exists():
            self.folder.held_out.write_text(json.dumps(held_out(texts, self.plan.judged)), "utf-8")
        self.group.wait()
        return [int(number) for number in json.loads(self.folder.held_out.read_text("utf-8"))]

    def _fit(self, texts: Sequence[Text], examples: Examples, held: Sequence[int]) -> Fit:
        trained = sorted(set(range(len(texts))) - set(held))
        head = self._first_head([texts[i] for i in trained], examples)
        inverse = torch.from_numpy(draft_vocab.inverse(head.ids.numpy(), self.shape.n_vocab)).to(self.group.device)
        head = head.to(self.group.device)
        counts = [texts[i].count for i in trained]
        fit = Fit(head, self.plan.recipe, self.group, inverse, counts, lambda i: examples(trained[i]))
        if self.folder.state.exists():
            saved_fit.load(fit, self.folder.state)
        self._steps(fit, Judge(self.folder, held, examples))
        return fit

    def _first_head(self, texts: Sequence[Text], examples: Examples) -> Head:
        plan = self.plan
        if not plan.init_from:
            return head_of_target(self.target, self.shape, self._draft_vocabulary(texts, ()), plan.seed)
        head = head_of_checkpoint(self.target, self.shape, Path(plan.init_from), examples.scales)
        if not plan.draft_vocab:
            return head
        return with_vocabulary(head, self.target, self._draft_vocabulary(texts, head.ids.tolist()))

    def _draft_vocabulary(self, texts: Sequence[Text], known: Sequence[int]) -> draft_vocab.Ids:
        """Chosen once: more answers must not change it under a head."""
        kept, size = self.folder.draft_vocab, self.shape.n_vocab
        if self.group.first and not kept.exists():
            kept.write_text(json.dumps(draft_vocab.choose(texts, size, self.plan.draft_vocab, known).tolist()), "utf-8")
        self.group.wait()
        ids = draft_vocab.as_ids(json.loads(kept.read_text("utf-8")))
        share = draft_vocab.covered(texts, ids, size)
        self.say(f"draft vocabulary: {len(ids):,} of {size:,} tokens, {share:.1%} of the answers")
        return ids

    def _steps(self, fit: Fit, judge: Judge) -> None:
        progress = Progress(self.say, "fit", "rows", 0, fit.place.rows)
        fraction = judged = fit.fraction
        if fraction >= 1:
            return
        saved = time.monotonic()
        while fraction < 1:
            report = fit.step(fraction)
            fraction = fit.fraction
            progress.total = fit.place.rows / fraction
            progress.at(fit.place.rows, f", loss {report.loss:.3f}")
            due = time.monotonic() - saved > SAVE_EVERY or fraction - judged > _JUDGE_EVERY or fraction >= 1
            if due and self.group.first:
                saved_fit.save(fit, self.folder.state)
                self._judge(fit, judge, report)
            if due:
                judged, saved = fraction, time.monotonic()
        progress.end()

    def _judge(self, fit: Fit, judge: Judge, report: Report) -> None:
        found = judge.judge(fit.head, fit.numbers, _JUDGED_TEXTS)
        judge.log(report, found)
        rates = " ".join(f"{rate:.2f}" for rate in found.rates)
        self.say(
            f"step {fit.place.step}: loss {report.loss:.3f}, held out {found.loss:.3f}, accepted by depth {rates}, "
            f"{found.tokens_per_step:.2f} tokens a step"
        )

    def _finish(self, fit: Fit, examples: Examples, held: Sequence[int]) -> dict[str, Any]:
        folder, scales = self.folder, examples.scales
        write_checkpoint(folder.head, fit.head, scales, self.target.stem)
        exported = head_of_checkpoint(self.target, self.shape, folder.head, scales).to(self.group.device)
        found = Judge(folder, held, examples).judge(exported, fit.numbers)
        write_gguf(folder.head, self.target, fit.head, folder.gguf, self.plan.outtype)
        examples.close()
        gains = self._evaluate([examples.texts[i] for i in held], fit.place.step)
        facts = self._facts(fit, examples.texts, found)
        (folder.head / "README.md").write_text(card(self.plan, facts, gains, found.rates), "utf-8")
        report = {
            "out": str(folder.gguf),
            "checkpoint": str(folder.head),
            "facts": vars(facts),
            "foretold": vars(found) | {"accept_by_depth": found.rates},
            "gains": [gain.as_dict() for gain in gains],
        }
        folder.report.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
        return report

    def _evaluate(self, texts: Sequence[Text], step: int) -> list[Gain]:
        """The gains of the head of a step, those that an earlier run found included."""
        path = self.folder.evaluation
        gains = [Gain(**line["gain"]) for line in read_lines(path) if line["step"] == step]
        with open(path, "a", encoding="utf-8") as lines:
            for gain in evaluate(self.target, self.folder.gguf, texts, self._engine_options(), gains):
                lines.write(json.dumps({"step": step, "gain": gain.as_dict()}) + "\n")
                lines.flush()
                gains.append(gain)
                self.say(f"{gain.mode}, temperature {gain.temperature:g}: {gain.tokens_per_step:.2f} tokens a step")
        return gains

    def _facts(self, fit: Fit, texts: Sequence[Text], found: Foretold) -> Facts:
        ids = fit.head.ids.cpu().numpy()
        return Facts(
            target=self.target.name,
            licence=metadata_of(model_header(self.target)).text("general.license"),
            texts=len(texts),
            tokens=sum(len(text.answer) for text in texts),
            draft_vocab=len(ids),
            covered=draft_vocab.covered(texts, ids, self.shape.n_vocab),
            rows=fit.place.rows,
            seconds=fit.place.seconds,
            loss=found.loss,
            parameters=sum(weight.numel() for weight in fit.head.parameters()),
        )

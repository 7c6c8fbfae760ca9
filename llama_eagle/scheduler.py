"""Scheduler: which request runs when. Continuous batching over the slots of a loop; knows no text.

A step is one decode of the target: a piece of the oldest prompt, or the trees of all that have a root, in turn.
"""

import threading
from collections import deque
from collections.abc import Callable

from .errors import AbortedError, EagleError, InputError
from .generate import Loop, Step
from .request import Request
from .sampling import SamplingParams
from .slot import Slot

Observer = Callable[[Step], None]
Fork = Callable[[Request, SamplingParams | None], Request]


class Scheduler:
    """Runs requests on a loop. Its calls may come from several threads; one step runs at a time.

    observe: sees every step. fork: makes the request that continues another one. keep: tokens that a context shift
    leaves at the beginning of a full context; None: the text ends there.
    """

    def __init__(self, loop: Loop, observe: Observer, fork: Fork, keep: int | None = None) -> None:
        self.loop = loop
        self.keep = keep
        self.waiting: deque[Request] = deque()
        self.running: dict[int, Request] = {}  # by sequence, the oldest first
        self.lock = threading.RLock()
        self._observe = observe
        self._fork = fork
        self._prompt_was_last = False
        self._stepping = False
        self._interrupt: BaseException | None = None

    def submit(self, request: Request) -> None:
        """Queues a request; it starts when a slot and the room for its prompt are free."""
        with self.lock:
            if request.left <= 0:
                self._finish(request)
            else:
                self.waiting.append(request)

    def fork(self, request: Request, params: SamplingParams | None) -> Request:
        """Queues a request that continues another one."""
        with self.lock:
            child = self._fork(request, params)
            self.submit(child)
            return child

    def stop(self, request: Request) -> None:
        """Ends a request wherever it is; what it decoded stays for a prompt that begins alike."""
        with self.lock:
            if request in self.waiting:
                self.waiting.remove(request)
            slot = self._slot(request)
            if slot is not None:
                self._release(slot)
            self._finish(request)

    def cancel(self, request: Request) -> None:
        """Ends a request wherever it is and frees its cells."""
        with self.lock:
            slot = self._slot(request)
            self.stop(request)
            if slot is not None:
                self.loop.drop(slot)

    def forget(self) -> None:
        """Frees what ended requests left for later prompts."""
        with self.lock:
            for slot in self.loop.slots:
                if not slot.busy:
                    self.loop.drop(slot)

    def slot_of(self, request: Request) -> Slot:
        """Where a request runs. Raises InputError when it waits or is done."""
        slot = self._slot(request)
        if slot is None:
            raise InputError(f"the request {'is done' if request.done else 'waits for a slot'}: it must be running")
        return slot

    def adopt(self, request: Request, fill: Callable[[Slot], None]) -> None:
        """Starts a request in a free slot whose caches `fill` sets. Raises InputError when no slot is free."""
        with self.lock:
            idle = [slot for slot in self.loop.slots if not slot.busy]
            if not idle:
                raise InputError(f"all {len(self.loop.slots)} slots are busy: wait for one or raise n_parallel")
            slot = min(idle, key=lambda one: len(one.tokens))
            self.loop.drop(slot)
            self._make_room(len(request.tokens))
            try:
                fill(slot)
            except BaseException:
                self.loop.drop(slot)
                raise
            self.loop.occupy(slot, request.sampler, request.left)
            slot.started, slot.seconds = bool(request.result.tokens), request.seconds
            self.running[slot.seq_id] = request

    def _slot(self, request: Request) -> Slot | None:
        return next((self.loop.slots[seq] for seq, running in self.running.items() if running is request), None)

    def step(self) -> bool:
        """One decode of the target. False: there is nothing to do.

        What a callback raised ends its request and is that request's error; a KeyboardInterrupt and its like are raised
        here, too, when the step is over.
        """
        with self.lock:
            if self._stepping:
                raise InputError("a callback cannot run the engine whose step it is part of: submit() and return")
            self._stepping = True
            try:
                return self._step()
            finally:
                self._stepping = False

    def _step(self) -> bool:
        self._admit()
        slots = [self.loop.slots[seq_id] for seq_id in self.running]
        prompts = [slot for slot in slots if slot.has_prompt]
        roots = [slot for slot in slots if not slot.has_prompt]
        if prompts and not (roots and self._prompt_was_last):
            self._prompt_was_last = True
            self._prefill(prompts[0])
        elif roots:
            self._prompt_was_last = False
            self._decode(roots)
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt
        return bool(slots)

    def _admit(self) -> None:
        """Starts what waits, in order, as long as slots and room last; a fork waits for its parent."""
        for request in list(self.waiting):
            idle = [slot for slot in self.loop.slots if not slot.busy]
            if not idle:
                return
            if request.waits:
                continue
            tokens = request.tokens
            slot = max(idle, key=lambda one: one.common(tokens))
            if not self._make_room(len(tokens) + 1, slot) and self.running:
                return
            self.waiting.remove(request)
            self._begin(slot, request, tokens)

    def _begin(self, slot: Slot, request: Request, tokens: list[int]) -> None:
        try:
            self.loop.begin(slot, tokens, request.sampler, request.left)
        except AbortedError:  # while the draft caught up: nothing of it began
            self.waiting.appendleft(request)
            raise
        except EagleError as error:
            request.error = error
            self._finish(request)
            return
        slot.seconds = request.seconds
        self.running[slot.seq_id] = request

    def _make_room(self, count: int, wanted: Slot | None = None) -> bool:
        """Whether there is room for `count` tokens, idle slots being emptied for it, those last that are `wanted`."""
        have = 0 if wanted is None else len(wanted.tokens)  # its tokens are part of the prompt, or dropped
        for slot in self.loop.slots:
            if self.loop.free() + have >= count:
                return True
            if not slot.busy and slot is not wanted and slot.tokens:
                self.loop.drop(slot)
        return self.loop.free() + have >= count

    def _prefill(self, slot: Slot) -> None:
        request = self.running[slot.seq_id]
        try:
            step = self.loop.prefill(slot)
        except AbortedError:
            raise
        except EagleError as error:
            self._end(slot, error)
            return
        if slot.failure is not None:
            self._end(slot, slot.failure)
        elif step.tokens:
            self._take(slot, request, step)

    def _decode(self, slots: list[Slot]) -> None:
        for slot in slots:
            if slot.busy and self.loop.room(slot) <= 0:
                self._at_the_edge(slot)
        slots = [slot for slot in slots if slot.busy]
        while not self._make_room(0):
            self._preempt(slots.pop())
        if not slots:
            return
        requests = [self.running[slot.seq_id] for slot in slots]
        for slot, request, step in zip(slots, requests, self.loop.step(slots), strict=True):
            if request.done:  # a callback of this step gave it up
                continue
            if slot.failure is not None:
                self._end(slot, slot.failure)
            else:
                self._observe(step)
                self._take(slot, request, step)

    def _preempt(self, slot: Slot) -> None:
        """The youngest sequence gives its room to older ones and starts again when there is some."""
        request = self.running[slot.seq_id]
        self._release(slot)
        self.loop.drop(slot)
        self.waiting.appendleft(request)

    def _take(self, slot: Slot, request: Request, step: Step) -> None:
        request.take(step)
        if request.done:  # its callback gave it up
            return
        if request.error is not None:
            self._end(slot, request.error)
        elif request.answer.ended:
            self._release(slot)
            self._finish(request)
        elif request.left <= 0 or (self.keep is None and self.loop.room(slot) <= 0):
            self._end_at_limit(slot)

    def _at_the_edge(self, slot: Slot) -> None:
        if self.keep is None:
            self._end_at_limit(slot)
        else:
            self.loop.shift(slot, min(self.keep, len(slot.tokens) - 2))

    def _end_at_limit(self, slot: Slot) -> None:
        request = self.running[slot.seq_id]
        request.result.context_full = request.left > 0
        request.rest()
        if request.done:
            return
        if request.error is not None:
            self._end(slot, request.error)
            return
        self._release(slot)
        self._finish(request)

    def _end(self, slot: Slot, error: BaseException) -> None:
        request = self.running[slot.seq_id]
        request.error = error
        if not isinstance(error, Exception):
            self._interrupt = error
        self._release(slot)
        self._finish(request)

    def _finish(self, request: Request) -> None:
        rate = self.loop.policy.plain_rate()
        if rate is not None:
            request.result.timings.plain_tokens_per_s = rate
        request.finish()

    def _release(self, slot: Slot) -> None:
        self.running.pop(slot.seq_id)
        self.loop.release(slot)

"""ChatTemplate: renders messages to a prompt with a model's own jinja template, which is code from strangers.

Knows nothing of tokens; what a template may do is sandbox.py's business.
"""

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.exceptions import SecurityError

from .errors import InputError
from .sandbox import Sandbox

_MAX_SOURCE = 128 * 1024
_MAX_REASON = 300


class ChatTemplate:
    """A compiled template. source: jinja text, as in a GGUF's tokenizer.chat_template. bos, eos: texts of those tokens.

    Raises InputError when there is no template or it does not compile.
    """

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        if not isinstance(source, str) or not source.strip():
            raise InputError("the model has no chat template: use --raw, or give one with --chat-template-file")
        if len(source) > _MAX_SOURCE:
            raise InputError(f"the chat template has {len(source)} characters, at most {_MAX_SOURCE} are taken")
        self._sandbox = Sandbox()
        self._sandbox.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now}
        self._special = {"bos_token": bos, "eos_token": eos}
        self._lock = threading.Lock()
        try:
            self._template = self._sandbox.from_string(source)
        except Exception as error:  # whatever a stranger's code brings up
            raise InputError(f"the chat template cannot be used: {_reason(error)}; try --chat-template-file") from None

    def render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt for messages of {"role": ..., "content": ...}; add_generation_prompt opens the answer.

        Raises InputError for other messages, and for what the template refuses, does wrong or makes too much of.
        """
        variables = {"messages": _checked(messages), "add_generation_prompt": add_generation_prompt, **self._special}
        with self._lock:
            self._sandbox.begin()
            try:
                return self._template.render(variables, tools=None, documents=None)
            except Exception as error:  # whatever a stranger's code brings up
                reason = _reason(error)
        raise InputError(f"the chat template failed: {reason}; try --raw or --chat-template-file")


def _checked(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Plain copies: a template gets no object of the caller's."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise InputError(f"messages must be a list of {{'role', 'content'}}, got {_shown(messages)}")
    for message in messages:
        if not isinstance(message, Mapping):
            raise InputError(f"a message must be {{'role', 'content'}}, got {_shown(message)}")
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise InputError(
                    f"a message needs a text as {key!r}, got {_shown(message.get(key))} in {_shown(message)}"
                )
        if not all(isinstance(part, str) for pair in message.items() for part in pair):
            raise InputError(f"a message holds texts only, got {_shown(message)}")
    return [{str(key): str(value) for key, value in message.items()} for message in messages]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:_MAX_REASON]
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"line {error.lineno}: {text}"
    if isinstance(error, SecurityError):
        return f"it was stopped: {text}"
    return text if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {text}"


def _raise(message: Any = "") -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(layout: str) -> str:
    if any(character.isdigit() for character in layout):
        raise SecurityError(f"the time format {layout[:40]!r} has a width")
    return datetime.now().strftime(layout)

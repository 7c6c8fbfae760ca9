"""What the target is asked: prompts of files, or such as it thinks of itself when it is to write a user's turn.

Letting a chat model write the user's turn of its own template is Magpie's way (arXiv 2406.08464); beginnings in the
user's words keep the topics apart. Knows no engine.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..bench.prompts import prompt_sets
from ..chat import ChatTemplate
from ..errors import InputError

BEGINNINGS = (
    "", "", "", "What is", "How do I", "Why", "Can you explain", "Explain", "Write a", "Write a short story about",
    "Complete this Python function:\n\ndef ", "Maria has", "Take this sentence and", "You are", "A farmer",
    "Write a poem about", "Write an email to", "Write a Python function that", "Write a program that",
    "Fix this code:\n", "What does this code do?\n", "Rewrite the following text", "Summarize the following",
    "Complete the following code.\n\nfrom typing import List\n\n\ndef ", "Tom buys", "Identify", "A shop sells",
    "Translate", "Rewrite the sentence", "Come up with", "Finish the code:\n\ndef is_", "Every day,", "Construct",
    "Correct the grammar of this sentence:", "List", "Give me five", "Name three", "Give me ideas for", "Compare",
    "What are the advantages and disadvantages of", "Describe", "Tell me about", "Who was", "When did", "Where is",
    "Implement a function with this docstring.\n\ndef ", "There are", "Pretend", "Brainstorm", "In a class of",
    "Which", "Is it true that", "Solve", "Calculate", "A train", "If I have", "How many", "What is the capital of",
    "Write the body of this function:\n\ndef count_", "A box contains", "How much", "Evaluate", "Analyze", "Sarah",
    "Convert", "Create a table of", "Make a plan for", "Suggest", "I am", "I want to", "My friend", "Help me",
    "Write a function in Python to", "John earns", "Determine", "Provide", "Create", "How would you", "Arrange",
    "Classify", "Complete the sentence:", "Imagine", "Design", "Generate", "Edit", "Given", "In what year",
    "Given the following Python code, finish it:\n\ndef get_", "If a car", "Discuss", "Predict", "Paraphrase",
    "What happens when", "What would", "Define", "Outline the steps", "Write a letter", "Write a dialogue between",
    "Write a blog post about", "Write a product description for", "Act as", "Let x be", "Emma and", "Extract",
    "Write a SQL query that", "Write a regular expression", "In JavaScript,", "Find the", "Prove that",
    "In C++,", "Qu'est-ce que", "Escribe", "Was ist", "How can", "Do you", "Should I", "Propose", "Simplify",
)  # fmt: skip
_MARK = "\u241fHere\u241f"  # stands for the user's words while the template is rendered
_LONGEST, _SHORTEST = 2000, 8  # characters of an invented prompt


@dataclass(frozen=True)
class UserTurn:
    """The text in front of a user's words in a chat."""

    before: str

    @staticmethod
    def of(template: ChatTemplate) -> "UserTurn":
        """Raises InputError for a template that changes what the user says."""
        text = template.render([{"role": "user", "content": _MARK}])
        before, mark, _ = text.partition(_MARK)
        if not mark:
            raise InputError("the chat template does not show a user's words as they are: give prompts with --prompts")
        return UserTurn(before)


class Unseen:
    """Tells which prompts are new: the same words in another case or spacing are not."""

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = {_key(text) for text in seen}

    def take(self, text: str) -> bool:
        """Whether a prompt is new; it is not, from now on."""
        key = _key(text)
        new = key not in self._seen
        self._seen.add(key)
        return new


def usable(text: str) -> bool:
    """Whether what a target wrote as a user's turn is a prompt: a few words, no page, few of them repeated."""
    words = text.split()
    return _SHORTEST <= len(text) <= _LONGEST and len(words) >= 3 and 3 * len(set(words)) >= len(words)


def of_files(files: Sequence[str]) -> list[str]:
    """The different prompts of JSON lines files, in order. Raises InputError with file and line for what is none."""
    unseen = Unseen()
    found = [prompt.text for prompts in prompt_sets(files) for prompt in prompts.prompts]
    return [text for text in found if unseen.take(text)]


def _key(text: str) -> str:
    return " ".join(text.lower().split())

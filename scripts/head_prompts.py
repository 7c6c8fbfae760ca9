"""Prompts to train the embedded head with, of public sources that lie beside each other in a folder.

    python scripts/head_prompts.py FOLDER -o prompts.jsonl [--keep-out BENCH.jsonl...] [--seed 7]

FOLDER has clones of openai/grade-school-math, OckBench/OckBench (for MBPP), yizhongw/self-instruct,
lm-sys/arena-hard-auto and anthropics/hh-rlhf; functions to complete come from Python's own library and the packages
that are installed here. What shares ten words in a row with a prompt to keep out, or is the same, is left out.
"""

import argparse
import ast
import gzip
import json
import random
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SHORTEST, LONGEST = 8, 1000  # characters of a prompt
GRAM = 10  # words
TOPICS = """
photosynthesis; the French Revolution; black holes; inflation in economics; a healthy breakfast; public transport in
cities; machine learning; the water cycle; time management; climate change; remote work; the Great Wall of China;
classical music; volcanoes; stress; electric cars; the human heart; vaccines; online privacy; gardening; coffee; the
Roman Empire; gravity; a good night's sleep; solar energy; friendship; the stock market; social media; bees; chess;
blockchain; the Industrial Revolution; yoga; dinosaurs; renewable energy; job interviews; cooking pasta;
Shakespeare; the Moon; recycling; antibiotics; marathon training; jazz; leadership; penguins; earthquakes; the
internet; budgeting; negotiation; ancient Egypt; plastic pollution; meditation; electricity; a library; airplanes;
diabetes; painting; democracy; the ocean; robots; learning a new language; a small bakery; a rainy day; an old
lighthouse; a lost dog; autumn; a smart watch; a fitness app; an organic soap; a travel agency; a mobile game; World
War I; DNA; quantum computing; the solar system; a kitchen knife; a used car; hiking in the mountains; public
speaking; the periodic table; globalization; poverty; an apple pie; tea; basketball; tigers; a summer holiday;
artificial intelligence; a school uniform; nuclear power; virtual reality; cybersecurity; a birthday party;
insomnia; a startup; the United Nations; whales; a noun and a verb; the Pythagorean theorem; probability; fractions;
supply and demand; an operating system; a database; sorting algorithms; recursion; version control; HTML and CSS; a
web server; a linked list; unit tests; the Python programming language
"""
QUESTIONS = """
Explain {} in simple terms.
What are the main benefits of {}?
Write a short paragraph about {}.
Write a poem about {}.
Give three interesting facts about {}.
List five questions that a beginner asks about {}.
What is the history of {}?
Write a short story that involves {}.
Compare {} with {}.
How does {} affect our daily lives?
Describe {} to somebody who has never heard of it.
Write a tweet about {}.
Suggest a catchy title for an article about {}.
What are the pros and cons of {}?
Generate an outline for a talk about {}.
Write an introduction for a blog post about {}.
Come up with a metaphor for {}.
Create a multiple choice question about {} with four answers.
Write a haiku about {}.
Name five words that have to do with {}.
Write a persuasive email about {} to a colleague.
Explain the difference between {} and {}.
Imagine that you are an expert on {}. What would you tell a student in their first week?
What mistakes do people make with {}?
Write a dialogue between two friends about {}.
Give me a step-by-step plan to learn more about {}.
Summarize what is known about {} in two sentences.
Design a poster about {}. Describe what it shows.
Write a thesis statement on {}.
Why is {} important?
Write a review of a book about {}.
Pretend to be a tour guide and talk about {}.
Make a table with facts about {}.
What could {} look like in fifty years?
Write a limerick about {}.
Write a letter to a newspaper about {}.
Give an example of {}.
Rewrite this sentence in a formal style: "{} is something that everybody talks about these days."
Write a quiz about {} with answers.
Act as a teacher and explain {} with an analogy.
"""
LEADS = (
    "Complete the code I provided.\n\n",
    "Complete the code I provided.\n",
    "",
    "Complete the following Python function:\n\n",
    "Finish this function:\n",
    "Complete the following code.\n\n",
)


def lines(path: Path) -> list[Any]:
    """The values of a JSON lines file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def arithmetic(folder: Path, draw: random.Random) -> list[str]:
    """Questions of GSM8K's training part."""
    return [one["question"] for one in lines(folder / "grade-school-math/grade_school_math/data/train.jsonl")]


def programs(folder: Path, draw: random.Random) -> list[str]:
    """MBPP's tasks: as they are, with their tests, or as functions to complete."""
    return [_program(one, number % 4, draw) for number, one in enumerate(lines(folder / "OckBench/data/mbpp.jsonl"))]


def _program(task: dict[str, Any], kind: int, draw: random.Random) -> str:
    text, tests = task["text"].strip(), task["test_list"]
    named = [found for found in re.finditer(r"def (\w+)\s*\(([^)]*)\)", task["code"]) if found[1] in tests[0]]
    if kind == 0 or not named:
        return str(text.replace("Write a function", "Write a Python function"))
    if kind == 1:
        return text + " Your code should pass these tests:\n\n" + "\n".join(tests)
    calls = [re.match(r"assert (.*?)\s*==\s*(.*)$", test) for test in tests[:2]]
    examples = "".join(f"    >>> {call[1]}\n    {call[2]}\n" for call in calls if call)
    words = re.sub(r"^Write a (python )?function to (\w)", lambda found: found[2].upper(), text)
    return f'{draw.choice(LEADS)}def {named[-1][1]}({named[-1][2]}):\n    """ {words}\n{examples}    """\n'


def functions(folder: Path, draw: random.Random) -> list[str]:
    """Beginnings of documented functions of the Python packages that are here."""
    found: dict[str, str] = {}
    for key in ("stdlib", "purelib"):
        for path in sorted(Path(sysconfig.get_path(key)).rglob("*.py")):
            if "test" not in str(path):
                found.update(_beginnings(path))
    return [draw.choice(LEADS) + text + "\n" for text in found.values()]


def _beginnings(path: Path) -> Iterator[tuple[str, str]]:
    try:
        source = path.read_text("utf-8")
        body = ast.parse(source).body
    except (ValueError, SyntaxError):
        return
    for node in body:
        words = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
        if isinstance(node, ast.FunctionDef) and words and 40 <= len(words) <= 500 and 3 <= len(node.body) <= 30:
            yield node.name, "\n".join(source.splitlines()[node.lineno - 1 : node.body[0].end_lineno])


def tasks(folder: Path, draw: random.Random) -> list[str]:
    """Self-Instruct's seeds and what its authors asked for users, each with its first input and without one."""
    of = folder / "self-instruct"
    found = []
    for task in lines(of / "data/seed_tasks.jsonl") + lines(of / "human_eval/user_oriented_instructions.jsonl"):
        given = task["instances"][0]["input"]
        found += [task["instruction"] + "\n" + given, task["instruction"]] if given else [task["instruction"]]
    return found


def texts(folder: Path, draw: random.Random) -> list[str]:
    """Two of each of the templates of T0 that Self-Instruct keeps: texts to shorten, to rewrite, to ask about."""
    found = []
    for path in sorted((folder / "self-instruct/data/finetuning/t0_train_50k/data_per_template").glob("*.jsonl")):
        short = [one["prompt"] for one in lines(path) if len(one["prompt"]) < 700]
        found += draw.sample(short, min(2, len(short)))
    return found


def arena(folder: Path, draw: random.Random) -> list[str]:
    """What people asked in Chatbot Arena, as Arena-Hard v0.1 chose it."""
    return [one["turns"][0]["content"] for one in lines(folder / "arena-hard-auto/data/arena-hard-v0.1/question.jsonl")]


def people(folder: Path, draw: random.Random) -> list[str]:
    """First turns of people in HH-RLHF."""
    packed = gzip.decompress((folder / "hh-rlhf/harmless-base/test.jsonl.gz").read_bytes()).decode()
    talks = [json.loads(line)["chosen"] for line in packed.splitlines()]
    return [talk.split("\n\nAssistant:")[0].replace("\n\nHuman:", "").strip() for talk in talks]


def topics(folder: Path, draw: random.Random) -> list[str]:
    """Common questions about common things."""
    things = [thing.strip() for thing in TOPICS.replace("\n", " ").split(";")]
    asked = [question for question in QUESTIONS.splitlines() if question]
    return [question.format(*draw.sample(things, question.count("{}"))) for question in asked for _ in range(22)]


SOURCES: dict[Callable[[Path, random.Random], list[str]], int] = {  # how many of each
    arithmetic: 2600, programs: 970, functions: 900, topics: 800, tasks: 750, arena: 450, people: 350, texts: 350,
}  # fmt: skip


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _grams(text: str) -> set[tuple[str, ...]]:
    words = _words(text)
    return {tuple(words[i : i + GRAM]) for i in range(max(len(words) - GRAM, 0) + 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    parser.add_argument("--keep-out", type=Path, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    known = {gram for path in args.keep_out for one in lines(path) for turn in one["turns"] for gram in _grams(turn)}
    chosen: dict[tuple[str, ...], tuple[str, str]] = {}
    for source, most in SOURCES.items():
        found = [
            text for text in source(args.folder, draw) if SHORTEST <= len(text) <= LONGEST and not _grams(text) & known
        ]
        draw.shuffle(found)
        print(f"{source.__name__}: {min(most, len(found))} of {len(found)}", file=sys.stderr)
        chosen.update({tuple(_words(text)): (source.__name__, text) for text in found[:most]})
    order = list(chosen.values())
    draw.shuffle(order)
    args.out.write_text("".join(json.dumps({"category": kind, "prompt": text}) + "\n" for kind, text in order), "utf-8")


if __name__ == "__main__":
    main()

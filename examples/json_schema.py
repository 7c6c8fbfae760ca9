"""An answer that is an object of a JSON schema: python examples/json_schema.py [TARGET DRAFT]"""

import json
import sys

from llama_eagle import Engine, SamplingParams

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "job": {"enum": ["baker", "pilot", "nurse"]},
        "happy": {"type": "boolean"},
    },
    "required": ["name", "job", "happy"],
    "additionalProperties": False,
}


def main(*files: str) -> None:
    with Engine(*files) as engine:
        prompt = engine.chat_prompt([{"role": "user", "content": "Invent a person, as JSON."}])
        result = engine.generate(prompt, SamplingParams(seed=3, json_schema=PERSON, max_tokens=200))
        person = json.loads(result.text)
        print(json.dumps(person))


if __name__ == "__main__":
    main(*sys.argv[1:])

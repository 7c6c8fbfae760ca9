"""Chat templates: what honest ones give, and that hostile ones end quickly as an InputError."""

import time

import pytest

from llama_eagle.chat import ChatTemplate
from llama_eagle.errors import InputError

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HI = [{"role": "user", "content": "Hi"}]


def render(source: str, content: str = "Hi") -> str:
    return ChatTemplate(source, "<s>", "</s>").render([{"role": "user", "content": content}])


def test_chatml_of_the_embedded_target() -> None:
    answer = "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    template = ChatTemplate(CHATML)
    assert template.render(HI) == answer + "<|im_start|>assistant\n"
    assert template.render(HI, add_generation_prompt=False) == answer


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>Hi</s>"),
        ("{% if true %}\n  {% set x = 1 %}\nA\n{% endif %}\n", "A\n"),  # trim_blocks, lstrip_blocks
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{{ {'a': ['ä', 1]} | tojson }}", '{"a": ["ä", 1]}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        (
            "{% for a in 'xyz' %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}",
            "1/3False 2/3False 3/3True ",
        ),
        ("{% for k, v in {'a': 1}.items() %}{{ k ~ v }}{% endfor %}", "a1"),
        ("{% for m in messages if m.role != 'user' %}no{% else %}none{% endfor %}", "none"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(messages[0]['role'] | upper) }}", "[USER]"),
        ("{{ tools is none }}{{ 'a,b'.split(',') | join('-') }}{{ '-'.join(['c', 'd']) }}", "Truea-bc-d"),
        ("{{ 'aXb'.replace('X', '+') }}{{ 'aXb' | replace('X', '-') }}{{ '%s=%03d' | format('a', 7) }}", "a+ba-ba=007"),
        ("{{ '{}{:>3}{{}}'.format(1, 2) }}{{ '%5d' % 1 }}", "1  2{}    1"),
        ("{% generation %}{{ messages[-1:][0].content.strip() }}{% endgeneration %}", "Hi"),
        ("{{ 'a\nb' | indent(2) }}{{ '<' | e }}{{ '<' | safe }}", "a\n  b&lt;<"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | length }}", "1"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ 2 ** 10 }}{{ 7 // 2 }}{{ [1] + [2] }}{{ undefined_name }}", "10243[1, 2]"),
    ],
)
def test_what_templates_use(source: str, text: str) -> None:
    assert render(source) == text


HOSTILE = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "classes by subscript": "{{ ''['__class__']['__mro__'] }}",
    "classes by format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "classes by format_map": "{{ '{a.__class__.__mro__}'.format_map({'a': ''}) }}",
    "attr filter": "{{ ''|attr('__class__') }}",
    "globals": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "frame": "{% for x in (1, 2) %}{{ self._TemplateReference__context.eval_ctx }}{% endfor %}",
    "builtins": "{{ raise_exception.__globals__['__builtins__'] }}",
    "change the messages": "{{ messages.append(1) }}",
    "change a message": "{{ messages[0].update({'role': 'system'}) }}",
    "import": "{% import 'os' as os %}",
    "include": "{% include '/etc/passwd' %}",
    "lipsum": "{{ lipsum(n=100000) }}",
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "loops": "{% for i in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}",
    "loops with text": "{% for i in range(99999) %}{% for i in range(99999) %}"
    + "x" * 999
    + "{% endfor %}{% endfor %}",
    "loops in a block": "{% set x %}{% for i in range(99999) %}" + "x" * 9999 + "{% endfor %}{% endset %}",
    "loop filter": "{% for i in range(99999) if range(99999)|list|length < 0 %}{% endfor %}",
    "recursive loop": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "recursive macro": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "macro tree": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "power": "{{ 10**(10**10) }}",
    "text times": "{{ 'a' * 10**10 }}",
    "times text": "{{ 10**10 * 'a' }}",
    "list times": "{{ [0] * 10**10 }}",
    "list of texts": "{{ ['a' * 10**6] * 10**6 }}",
    "doubled kwargs": "{% macro f() %}{{ f(a=kwargs, b=kwargs) }}{% endmacro %}{{ f(a=1) }}",
    "wide format": "{{ '{:>9999999999}'.format(1) }}",
    "format by argument": "{{ '{:>{}}'.format(1, 10**9) }}",
    "wide percent": "{{ '%09999999999d' % 1 }}",
    "percent by argument": "{{ '%*d' % (10**9, 1) }}",
    "percent filter": "{{ '%.9999999999f' | format(1.0) }}",
    "padding": "{{ 'a'.ljust(10**10) }}",
    "zeros": "{{ 'a'.zfill(10**10) }}",
    "tabs": "{{ '\t'.expandtabs(10**10) }}",
    "translate": "{{ ('a' * 10**6).translate({97: 'b' * 10**6}) }}",
    "bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "center": "{{ 'a'|center(10**10) }}",
    "indent": "{{ ('\n' * 10**6)|indent(10**6) }}",
    "json indent": "{{ [1]|tojson(indent=10**9) }}",
    "batch": "{{ [1]|batch(10**9, 0)|list }}",
    "replace": "{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}",
    "replace filter": "{{ ('a' * 10**6)|replace('a', 'b' * 10**6) }}",
    "replaced numbers": "{{ range(99999)|map('replace', '1', 'x' * 10**5)|list|length }}",
    "join": "{{ ('b' * 10**6).join('a' * 10**5) }}",
    "join filter": "{{ ('a' * 10**5)|join('b' * 10**6) }}",
    "time format": "{{ strftime_now('%9999999999Y') }}",
    "nesting": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nested blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "long source": "{{ 1 }}" * 30000,
    "endless message": "{{ raise_exception('a' * 10**6) }}",
    "division": "{{ 1 // 0 }}",
}


GROWING = {
    "squares": ("3", "ns.x * ns.x"),
    "doubled text": ("'a'", "ns.x ~ ns.x"),
    "added text": ("'a'", "ns.x + ns.x"),
    "doubled list": ("[]", "[ns.x, ns.x]"),
    "doubled dict": ("1", "{0: ns.x, 1: ns.x}"),
    "doubled cycler": ("1", "cycler(ns.x, ns.x).items"),
    "deep list": ("1", "[ns.x]"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_quickly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_eagle.sandbox.SECONDS", 0.5)
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        render(HOSTILE[name])
    assert time.process_time() - start < 5
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", GROWING)
def test_growing_values_are_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_eagle.sandbox.SECONDS", 0.5)
    start, step = GROWING[name]
    source = (
        "{% set ns = namespace(x=" + start + ") %}{% for i in range(9999) %}{% set ns.x = " + step + " %}{% endfor %}"
    )
    begin = time.process_time()
    with pytest.raises(InputError):
        render(source + "{{ ns.x }}")
    assert time.process_time() - begin < 5


def test_namespaces_in_each_other_stay_short() -> None:
    source = "{% set a = namespace() %}{% set b = namespace(x=a, y=a) %}{% set a.x = b %}{{ b }}{{ [a, b] }}"
    assert render(source) == "<namespace>[<namespace>, <namespace>]"


def test_a_stopped_template_can_be_used_again() -> None:
    template = ChatTemplate("{% if messages[0].content == 'x' %}{{ 'a' * 10**9 }}{% endif %}ok")
    with pytest.raises(InputError, match="stopped"):
        template.render([{"role": "user", "content": "x"}])
    assert template.render(HI) == "ok"


def test_a_long_conversation_is_within_the_budget() -> None:
    messages = [{"role": "user", "content": "word " * 400}] * 500
    assert len(ChatTemplate(CHATML).render(messages)) > 1_000_000


def test_the_caller_keeps_its_messages() -> None:
    source = "{% set ns = namespace(m=messages) %}{% set ns.m = ns.m + [1] %}{{ ns.m | length }}"
    messages = list(HI)
    assert ChatTemplate(source).render(messages) == "2"
    assert messages == HI


@pytest.mark.parametrize("source", ["", "  \n", None])
def test_no_template(source: str) -> None:
    with pytest.raises(InputError, match=r"--raw.*--chat-template-file"):
        ChatTemplate(source)


def test_the_template_s_own_words_are_quoted() -> None:
    with pytest.raises(InputError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(InputError, match="line 2: "):
        ChatTemplate("a\n{% for %}")


@pytest.mark.parametrize(
    "messages",
    [[], "Hi", {"role": "user", "content": "Hi"}, ["Hi"], [{"role": "user"}], [{"role": 1, "content": "a"}],
     [{"role": "user", "content": ["a"]}], [{"role": "user", "content": "a", "tool": object()}], None, 7],
)  # fmt: skip
def test_wrong_messages(messages: object) -> None:
    with pytest.raises(InputError, match="message"):
        ChatTemplate(CHATML).render(messages)  # type: ignore[arg-type]

"""A request of plain fields is the text that a template of Jinja2 makes of it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import SandboxedEnvironment

from sampling import examples
from toolcrib.core.text import compact
from toolcrib.expressions import compile_value

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True).filter(
    lambda name: name not in {"true", "false", "none", "and", "or", "not", "if", "else", "in", "is"}
)
TEXTS = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=5)

ENVIRONMENT = SandboxedEnvironment(autoescape=False)
ENVIRONMENT.filters["json"] = compact


@st.composite
def requests(draw):
    """Fields, the template that writes them, and arguments that have what they read."""
    args = draw(ARGUMENTS)
    fields, written = {}, []
    for key in draw(
        st.lists(TEXTS.filter(lambda text: "{" not in text and "$" not in text), unique=True, max_size=5)
    ):
        name = draw(st.sampled_from(sorted(args)))
        fields[key] = f"{{{{ args.{name} }}}}"
        # Outside `raw` a brace of JSON in front of a mark would be read as one of it.
        written.append(f"{compact(key)}:{{% endraw %}}{{{{ args['{name}'] | json }}}}{{% raw %}}")
    return fields, "{% raw %}{" + ",".join(written) + "}{% endraw %}", args


@given(requests())
@settings(max_examples=examples(300), deadline=None)
def test_plain_fields_make_the_text_of_a_template(request):
    fields, template, args = request
    problems = []
    rendering = compile_value(fields, ["args"], problems)
    assert problems == []
    ours = compact(rendering.render({"args": args}))
    assert ours == ENVIRONMENT.from_string(template).render(args=args)
    assert json.loads(ours) == {key: args[text[8:-3]] for key, text in fields.items()}


@given(
    st.lists(
        TEXTS.filter(lambda text: "{" not in text and "$" not in text and "\r" not in text),
        min_size=2,
        max_size=4,
    ),
    TEXTS,
)
@settings(max_examples=examples(300), deadline=None)
def test_fields_within_text_make_the_text_of_a_template(pieces, value):
    source = "{{ args.x }}".join(pieces)
    problems = []
    rendering = compile_value(source, ["args"], problems)
    assert problems == []
    environment = SandboxedEnvironment(autoescape=False, keep_trailing_newline=True)
    assert rendering.render({"args": {"x": value}}) == environment.from_string(source).render(
        args={"x": value}
    )

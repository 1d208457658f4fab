"""`packs/workspace` on real files: the mocks' scenarios again, and everything that must not leave the folder or hang."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from fnmatch import translate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples, sample
from toolcrib import Outcome, Runtime, load_hook, run_scenario

PACK = Path(__file__).parents[2] / "packs" / "workspace"
with Runtime.open(PACK) as _mocked:
    STORE = _mocked.session().store.rows(_mocked.registry["read_file"].fixture.collections["files"])
CLASSES = {
    "edit_file": "EditFile",
    "list_files": "ListFiles",
    "outline_file": "OutlineFile",
    "read_file": "ReadFile",
    "search_files": "SearchFiles",
    "write_file": "WriteFile",
}


def write_store(folder):
    for name, row in STORE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(row["text"], encoding="utf-8")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The files of the store in a folder, and a folder beside it that nothing may touch."""
    folder = tmp_path / "root"
    write_store(folder)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret", encoding="utf-8")
    monkeypatch.setenv("TOOLCRIB_WORKSPACE", str(folder))
    return folder


@pytest.fixture
def tools(root):
    with Runtime.open(PACK, mode="python", trust=True) as opened:
        yield opened


def value(tools, name, **arguments):
    return tools.call_sync(name, arguments).raise_for_outcome().value


def code(tools, name, **arguments):
    answer = tools.call_sync(name, arguments)
    assert answer.outcome is Outcome.TOOL_ERROR, answer
    assert "secret" not in str(answer.as_json()).replace("secret.txt", "")
    return answer.error.code


# The same tools, mocked and real.


async def test_the_scenarios_and_examples_of_the_mocks_hold_for_real_files(root, monkeypatch):
    async with Runtime.open(PACK, mode="python", trust=True) as tools:
        cases = [
            *tools.scenarios,
            *((name, each) for name in CLASSES for each in tools.registry[name].examples),
        ]
    assert len(cases) == 16
    for number, case in enumerate(cases):
        folder = root.with_name(f"copy{number}")
        shutil.copytree(root, folder)
        monkeypatch.setenv("TOOLCRIB_WORKSPACE", str(folder))
        async with Runtime.open(PACK, mode="python", trust=True) as tools:
            if isinstance(case, tuple):
                answer = await tools.call(case[0], dict(case[1].args))
                assert (answer.outcome, answer.value) == (Outcome.OK, case[1].result)
            else:
                report = await run_scenario(tools, case)
                assert report.passed, str(report)


@pytest.mark.parametrize("name", CLASSES)
def test_the_schemas_of_the_files_are_those_of_the_classes(name, tools):
    made = load_hook(f"workspace_tools:{CLASSES[name]}", "here", packs=[str(PACK)])
    with Runtime.open(PACK, trust=True) as typed:
        typed.remove(name)
        typed.add(made)
        derived = typed.registry[name].input_schema
    written = tools.registry[name].input_schema
    facts = ("type", "default")
    assert {key: [each.get(fact) for fact in facts] for key, each in written["properties"].items()} == {
        key: [each.get(fact) for fact in facts] for key, each in derived["properties"].items()
    }
    assert written.get("required", []) == derived.get("required", [])


# Nothing leaves the folder.

PARTS = st.sampled_from(
    [
        "shop",
        "cart.py",
        "..",
        ".",
        "",
        "in",
        "out",
        "far",
        "loop",
        "file",
        "new",
        "outside",
        "secret.txt",
        "root",
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(parts=st.lists(PARTS, min_size=1, max_size=6), slash=st.booleans())
def test_no_path_reads_or_writes_outside_of_the_folder(parts, slash, tmp_path_factory):
    base = tmp_path_factory.mktemp("base", numbered=True)
    folder, outside = base / "root", base / "outside"
    write_store(folder)
    outside.mkdir()
    (outside / "secret.txt").write_text("secret", encoding="utf-8")
    (folder / "in").symlink_to("shop")
    (folder / "file").symlink_to("in/../shop/cart.py")
    (folder / "out").symlink_to("../outside")
    (folder / "far").symlink_to(outside)
    (folder / "loop").symlink_to("loop")
    opened = load_hook("workspace_tools.folder:Folder", "here", packs=[str(PACK)])(str(folder))
    refusal = sys.modules["workspace_tools.folder"].Refusal
    path = ("/" if slash else "") + "/".join(parts)
    try:
        content = opened.read(path, 100).content
    except refusal:
        content = b""
    # What the system itself reads at the path, if that is inside.
    real = Path(os.path.realpath(folder / path))
    if content:
        assert real.is_relative_to(folder)
        assert real.read_bytes()[:100] == content
    try:
        opened.write(path or ".", b"written")
    except refusal:
        pass
    else:
        assert Path(os.path.realpath(folder / path)).read_bytes() == b"written"
    opened.close()
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_bytes() == b"secret"
    assert {each.name for each in base.iterdir()} == {"root", "outside"}


RACE = '''
import os, sys, pathlib
sys.path.insert(0, sys.argv[2])
from workspace_tools.folder import Folder, Refusal

base = pathlib.Path(sys.argv[1])
swaps = []

def at_open(event, arguments):
    """Run the next swap when a name is opened: after it was checked, and before the system opens it."""
    if event == "open" and swaps and arguments[0] == swaps[0][0]:
        swaps.pop(0)[1]()

def by_link(path, target):
    def swap():
        os.rename(path, f"{path}.before")
        os.symlink(target, path)
    return swap

def restore(path):
    os.unlink(path)
    os.rename(f"{path}.before", path)

sys.addaudithook(at_open)
folder = Folder(str(base / "root"))
for name, swapped in {"cart.py": "shop/cart.py", "shop": "shop"}.items():
    target = base / "outside" / "secret.txt" if name == "cart.py" else base / "outside"
    place = base / "root" / swapped
    os.link(base / "root" / "README.md", base / "outside" / "cart.py") if name == "shop" else None
    swaps.append((name, by_link(place, target)))
    try:
        print(name, "read", folder.read("shop/cart.py", 100).content)
    except Refusal as refusal:
        print(name, "read", refusal.code)
    assert not swaps
    restore(place)
    swaps.append((name if name == "shop" else "new", by_link(place, target)))
    try:
        folder.write("shop/cart.py", b"written")
        print(name, "written")
    except Refusal as refusal:
        print(name, "write", refusal.code)
    swaps.clear()
print([each.name for each in sorted((base / "outside").iterdir())])
'''


def test_a_component_that_becomes_a_link_between_check_and_open_is_not_followed(root, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", RACE, str(tmp_path), str(PACK)], capture_output=True, text=True, check=False
    )
    assert (run.stdout.splitlines(), run.stderr) == (
        [
            "cart.py read unusable",
            "cart.py written",
            "shop read not_a_file",
            "shop write not_a_file",
            "['cart.py', 'secret.txt']",
        ],
        "",
    )
    assert (tmp_path / "outside" / "secret.txt").read_text() == "secret"
    assert (tmp_path / "outside" / "cart.py").read_text() == STORE["README.md"]["text"]


CHANGE = """
import os, sys
sys.path.insert(0, sys.argv[2])
os.environ["TOOLCRIB_WORKSPACE"] = sys.argv[1]
import workspace_tools

def at_open(event, arguments):
    if event == "open" and str(arguments[0]).endswith(".tmp"):
        with open(sys.argv[1] + "/README.md", "a") as file:
            file.write("by somebody else")

tool = workspace_tools.EditFile()
tool.initialise(workspace_tools.WorkspaceConfig())
sys.addaudithook(at_open)
print(tool.execute(workspace_tools.Edit("README.md", "Shop", "Store")).error.code)
"""


def test_an_edit_does_not_overwrite_what_another_program_writes_meanwhile(root):
    arguments = [sys.executable, "-c", CHANGE, str(root), str(PACK)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("changed_meanwhile\n", "")
    assert (root / "README.md").read_text() == STORE["README.md"]["text"] + "by somebody else"
    assert sorted(each.name for each in root.iterdir()) == ["README.md", "shop", "web"]


def test_what_is_no_regular_file_is_refused_without_waiting(root, tools, monkeypatch):
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(root)  # the path of a socket is short
        server.bind("sock")
        (root / "zero").symlink_to("/dev/zero")
        for name in ("pipe", "sock", "shop", ".", "shop/", "README.md/"):
            assert code(tools, "read_file", path=name) == "not_a_file", name
            assert code(tools, "write_file", path=name, content="x") == "not_a_file", name
        assert code(tools, "read_file", path="zero") == "outside"
        assert [each["path"] for each in value(tools, "list_files")["files"]] == sorted(STORE)
        assert value(tools, "search_files", pattern="cents")["notice"] == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    sample(
        [
            ("../outside/secret.txt", "outside"),
            ("shop/../../outside/secret.txt", "outside"),
            ("/etc/passwd", "outside"),
            ("a\0b", "invalid_path"),
            ("x" * 300, "unusable"),
            ("y/" * 2000 + "z", "not_found"),
            ("README.md/x", "not_a_file"),
            ("SHOP/cart.py", "not_found"),
            (" README.md", "not_found"),
            ("~/README.md", "not_found"),
            ("..", "not_a_file"),
        ],
        one_in=2,
    ),
)
def test_hard_paths_have_an_error_of_their_own(path, expected, tools):
    if path == "..":
        expected = "outside"
    assert code(tools, "read_file", path=path) == expected


def test_links_inside_the_folder_work_and_keep_their_target(root, tools):
    (root / "link.md").symlink_to("web/../README.md")
    assert value(tools, "read_file", path="link.md")["content"].startswith("# Shop")
    assert value(tools, "edit_file", path="link.md", old_text="Shop", new_text="Store")["replacements"] == 1
    assert (root / "link.md").is_symlink()
    assert (root / "README.md").read_text().startswith("# Store")
    assert value(tools, "read_file", path=f"{root}/README.md")["lines"] == 3
    (root / "again").symlink_to("again")
    assert code(tools, "read_file", path="again") == "too_many_links"


# Reading.


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a\0b", "it contains NUL bytes"),
        ("à la carte\n".encode("latin-1"), "the byte 0xe0 is not UTF-8"),
        ("text".encode("utf-16"), "NUL"),
        (b"\xff\xfe", "0xff"),
    ],
)
def test_what_is_not_utf_8_is_neither_read_nor_edited(content, told, root, tools):
    (root / "odd").write_bytes(content)
    for name, more in (("read_file", {}), ("edit_file", {"old_text": "a", "new_text": "b"})):
        answer = tools.call_sync(name, {"path": "odd", **more})
        assert (answer.error.code, told in answer.message) == ("not_text", True)
    assert (root / "odd").read_bytes() == content
    assert value(tools, "search_files", pattern=".")["notice"] == ""


@settings(max_examples=examples(60), deadline=None)
@given(
    lines=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=8), max_size=12
    ),
    limit=st.integers(1, 5),
)
def test_the_pages_of_a_file_are_its_content(lines, limit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages", numbered=True)
    content = "\n".join(lines)
    (folder / "text").write_bytes(content.encode())
    module = load_hook("workspace_tools:ReadFile", "here", packs=[str(PACK)]).__module__
    module = sys.modules[module]
    tool = module.ReadFile()
    tool.initialise(module.WorkspaceConfig(str(folder)))
    pages, offset = [], 1
    while offset is not None:
        page = tool.execute(module.Reading("text", offset, limit))
        assert page.lines == len(page.content.split("\n")) - page.content.endswith("\n") or not page.content
        pages.append(page.content)
        offset = page.next_offset
    tool.close()
    assert "".join(pages) == content


def test_large_files_are_read_in_bounds(root, tools):
    (root / "long.txt").write_text("x" * 400_000 + "\nsecond\n", encoding="utf-8")
    first = value(tools, "read_file", path="long.txt")
    assert (len(first["content"]), first["next_offset"]) == (50_000, 2)
    assert (
        first["notice"]
        == "line 1 is cut after 50000 characters; there are more lines; continue with offset 2"
    )
    assert value(tools, "read_file", path="long.txt", offset=2)["content"] == "second\n"
    (root / "wide.txt").write_text("€" * 100_000, encoding="utf-8")
    assert value(tools, "read_file", path="wide.txt")["content"] == "€" * 50_000
    (root / "many.txt").write_text("0123456789\n" * 20_000, encoding="utf-8")
    page = value(tools, "read_file", path="many.txt", limit=10_000)
    assert (page["lines"], page["next_offset"]) == (4545, 4546)
    assert page["notice"] == "there are more lines; continue with offset 4546"
    with (root / "sparse").open("wb") as file:
        file.truncate(9 << 20)
    assert code(tools, "edit_file", path="sparse", old_text="a", new_text="b") == "too_large"
    assert (
        "sparse: `sparse` has more than 8388608 bytes"
        in value(tools, "search_files", pattern="second")["notice"]
    )
    (root / "empty").touch()
    assert value(tools, "read_file", path="empty") == {
        "path": "empty",
        "content": "",
        "lines": 0,
        "next_offset": None,
        "notice": "",
    }


# Lists and searches.


@settings(max_examples=examples(100), deadline=None)
@given(
    names=st.lists(st.sampled_from(["a", "ab", "b.py", "c.py"]), min_size=1, max_size=4),
    segments=st.lists(
        st.sampled_from(["**", "*", "a*", "*.py", "?b", "[ab]", "b.py"]), min_size=1, max_size=4
    ),
)
def test_globs_match_as_regular_expressions_do(names, segments):
    load_hook("workspace_tools:ListFiles", "here", packs=[str(PACK)])
    module = sys.modules["workspace_tools"]
    parts = [
        "(?:[^/]+/)*" if each == "**" else translate(each).replace(".*", "[^/]*").removesuffix(r"\Z") + "/"
        for each in segments
    ]
    expected = re.fullmatch("".join(parts), "".join(f"{name}/" for name in names)) is not None
    assert module._matches(names, [*module._segments("/".join(segments))]) == expected


def test_lists_and_searches_leave_out_what_nobody_wants_and_say_what_they_could_not_see(root, tools):
    for name in (".git/config", "node_modules/x/index.js", "shop/__pycache__/cart.pyc", ".hidden/keep"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("def total\n")
    (root / "away").symlink_to("../outside")
    os.close(os.open(os.fsencode(root) + b"/\xff.txt", os.O_CREAT))
    deep = root / "deep"
    for _ in range(66):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "x").touch()
    found = value(tools, "list_files")
    assert [each["path"] for each in found["files"]] == [".hidden/keep", *sorted(STORE)]
    assert re.fullmatch(
        r"left out: deep/(d/)+d: more than 64 folders deep; \?.txt: the name is not UTF-8", found["notice"]
    )
    matches = value(tools, "search_files", pattern=r"def \w+\(")["matches"]
    assert [(each["path"], each["line"]) for each in matches] == [
        ("shop/cart.py", 5),
        ("shop/cart.py", 8),
        ("shop/cart.py", 11),
        ("shop/tax.py", 4),
    ]
    assert value(tools, "list_files", path="shop/cart.py")["files"] == [{"path": "shop/cart.py", "size": 247}]
    assert value(tools, "list_files", path="shop", pattern="*.js")["files"] == []
    assert code(tools, "list_files", path="away") == "outside"
    assert code(tools, "search_files", pattern="x", path="../outside") == "outside"


def test_no_pattern_takes_more_than_linear_time(root, tools):
    (root / "a.txt").write_text("a" * 200_000 + "b", encoding="utf-8")
    assert value(tools, "search_files", pattern="^(a+)+$")["matches"] == []
    assert value(tools, "list_files", pattern="*a" * 40 + "b")["files"] == []
    assert value(tools, "list_files", pattern="**/" * 60 + "nothing")["files"] == []
    for pattern in ("(?=x)", r"(x)\1", "(", "a{1000000}"):
        assert code(tools, "search_files", pattern=pattern) == "invalid_pattern", pattern
    assert len(value(tools, "search_files", pattern="^A", ignore_case=True)["matches"][0]["text"]) == 300


# Writing.


def test_a_file_is_replaced_at_once_and_keeps_its_mode(root, tools):
    script = root / "run.sh"
    script.write_text("echo one\n")
    script.chmod(0o750)
    before = script.stat().st_ino
    with script.open() as open_file:
        assert value(tools, "edit_file", path="run.sh", old_text="one", new_text="two")["lines"] == [1]
        assert open_file.read() == "echo one\n"
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("echo two\n", 0o750)
    assert script.stat().st_ino != before
    assert value(tools, "write_file", path="a/b/c.txt", content="é")["bytes"] == 2
    assert value(tools, "write_file", path="empty", content="") == {
        "path": "empty",
        "created": True,
        "bytes": 0,
    }
    assert sorted(each.name for each in root.iterdir()) == [
        "README.md",
        "a",
        "empty",
        "run.sh",
        "shop",
        "web",
    ]


def test_an_edit_keeps_the_line_ends_and_the_byte_order_mark(root, tools):
    (root / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    assert value(tools, "read_file", path="dos.txt")["content"] == "one\r\ntwo\r\nthree\r\n"
    value(tools, "edit_file", path="dos.txt", old_text="one\ntwo\n", new_text="1\n2\n")
    assert (root / "dos.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree\r\n"


@settings(max_examples=examples(80), deadline=None)
@given(
    text=st.text("ab\n", max_size=30),
    old=st.text("ab\n", min_size=1, max_size=3),
    new=st.text("abc\n", max_size=3),
    every=st.booleans(),
)
def test_an_edit_replaces_exactly_what_it_counts(text, old, new, every, tmp_path_factory):
    folder = tmp_path_factory.mktemp("edits", numbered=True)
    (folder / "text").write_text(text)
    load_hook("workspace_tools:EditFile", "here", packs=[str(PACK)])
    module = sys.modules["workspace_tools"]
    tool = module.EditFile()
    tool.initialise(module.WorkspaceConfig(str(folder)))
    answer = tool.execute(module.Edit("text", old, new, every))
    tool.close()
    count = text.count(old)
    if old == new:
        expected = "no_change"
    elif not count:
        expected = "no_match"
    elif count > 1 and not every:
        expected = "ambiguous_match"
        assert answer.error.details["matches"] == count
    else:
        assert answer.replacements == count
        assert (folder / "text").read_text() == text.replace(old, new)
        assert [text[:at].count("\n") + 1 for at in _places(text, old)] == answer.lines
        return
    assert answer.error.code == expected
    assert (folder / "text").read_text() == text


def _places(text, old):
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + len(old))


# Outlines.


def test_an_outline_has_the_symbols_of_python(root, tools):
    (root / "code.py").write_text(
        "import os\n\nif os.name:\n    async def wait(*, s: float = 1.5) -> None:\n        ...\n\n"
        "@final\nclass A(B, metaclass=M):\n    class Inner:\n        @property\n        def x(self): return 1\n"
    )
    symbols = value(tools, "outline_file", path="code.py")["symbols"]
    assert [
        (each["name"], each["kind"], each["line"], each["end_line"], each["signature"]) for each in symbols
    ] == [
        ("wait", "function", 4, 5, "async def wait(*, s: float=1.5) -> None"),
        ("A", "class", 8, 11, "class A(B, metaclass=M)"),
        ("A.Inner", "class", 9, 11, "class Inner"),
        ("A.Inner.x", "method", 11, 11, "def x(self)"),
    ]
    for text in ("def f(:\n", "x = (" * 5000, "\x0c def"):
        (root / "code.py").write_text(text)
        assert code(tools, "outline_file", path="code.py") == "syntax_error"


def test_an_outline_of_another_language_needs_its_parser(root, tools):
    (root / "code.js").write_text(
        "class Cart {\n  add(price) { return 1; }\n}\nexport function total(prices) {\n  const f = () => 1;\n}\n"
    )
    symbols = value(tools, "outline_file", path="code.js")["symbols"]
    assert [
        (each["name"], each["kind"], each["line"], each["end_line"], each["signature"]) for each in symbols
    ] == [
        ("Cart", "class", 1, 3, "class Cart"),
        ("Cart.add", "method", 2, 2, "add(price) { return 1; }"),
        ("total", "function", 4, 6, "export function total(prices)"),
    ]
    (root / "code.scala").write_text("class A\n")
    answer = tools.call_sync("outline_file", {"path": "code.scala"})
    assert answer.error.code == "missing_parser"
    assert "pip install tree-sitter tree-sitter-scala" in answer.message


def test_a_folder_that_does_not_exist_makes_the_tools_unavailable(root, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_WORKSPACE", str(root / "nowhere"))
    with Runtime.open(PACK, mode="python", trust=True) as tools:
        answer = tools.call_sync("read_file", {"path": "x"})
    assert (answer.outcome, answer.error.code) == (Outcome.UNAVAILABLE, "initialise_failed")
    assert "nowhere" in answer.message


# Programs.

GIT = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com"]


@pytest.fixture
def repository(root):
    """The files of the store in a repository, below a folder that is one as well."""
    (root.parent / "above.txt").write_text("above", encoding="utf-8")
    for folder in (root.parent, root):
        subprocess.run([*GIT, "init", "-q", "-b", "main"], cwd=folder, check=True)
        subprocess.run([*GIT, "add", "."], cwd=folder, check=True, stderr=subprocess.DEVNULL)
        subprocess.run([*GIT, "commit", "-qm", f"Add {folder.name}"], cwd=folder, check=True)
    return root


@pytest.fixture(params=["bubblewrap", "none"])
def programs(request, root):
    with Runtime.open(PACK, mode="exec", trust=True, sandbox=request.param) as opened:
        yield opened


def test_git_shows_the_state_of_the_folder(programs, repository):
    assert value(programs, "git_status") == {"text": "## main\n"}
    (repository / "shop" / "tax.py").write_text("RATE = 0.3\n", encoding="utf-8")
    assert value(programs, "git_status") == {"text": "## main\n M shop/tax.py\n"}
    assert "+RATE = 0.3\n" in value(programs, "git_diff", path="shop")["text"]
    assert value(programs, "git_diff", staged=True) == {"text": ""}
    assert re.fullmatch(r"[0-9a-f]+ \d{4}-\d\d-\d\d Ann: Add root\n", value(programs, "git_log")["text"])
    assert value(programs, "git_log", path="-p") == {"text": ""}


def test_git_finds_no_repository_above_the_folder(programs, repository):
    shutil.rmtree(repository / ".git")
    for name in ("git_status", "git_diff", "git_log"):
        result = programs.call_sync(name)
        assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "exit_code"), name
    assert code(programs, "git_log", path="../above.txt") == "exit_code"


def test_git_runs_no_program_that_the_repository_names(programs, repository, tmp_path):
    marker = repository / "marker"
    for key in ("diff.external", "core.fsmonitor", "core.pager", "diff.x.textconv"):
        subprocess.run([*GIT, "config", key, f"touch {marker}"], cwd=repository, check=True)
    (repository / ".gitattributes").write_text("* diff=x\n", encoding="utf-8")
    (repository / "README.md").write_text("# Changed\n", encoding="utf-8")
    for name in ("git_status", "git_diff", "git_log"):
        value(programs, name)
    assert not marker.exists()


def test_echo_returns_any_text(programs):
    for text in ("hello", "-n", "--help", "%s\\n", "$(id) `id`", ""):
        assert value(programs, "echo", text=text) == text


def test_ping_declares_its_network_and_is_given_no_option(programs, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ping").write_text('#!/bin/sh\nprintf "%s " "$@"\nexit 1\n', encoding="utf-8")
    (tmp_path / "bin" / "ping").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert programs.registry["ping"].capabilities == ("process", "network")
    text = "-n -q -w 10 -c 2 -- example.com "
    assert value(programs, "ping", host="example.com", count=2) == {"answered": False, "text": text}
    assert programs.call_sync("ping", {"host": "-f"}).outcome is Outcome.INVALID_ARGUMENTS


def test_without_a_workspace_git_is_unavailable(programs, monkeypatch):
    monkeypatch.delenv("TOOLCRIB_WORKSPACE")
    result = programs.call_sync("git_status")
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "unmet_requirement")

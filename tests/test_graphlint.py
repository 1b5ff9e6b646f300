"""The lint: each rule on a snippet and its corrected form, and the rules against the installed MindSpore."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.diagnose.api_rules import ABSENT, LINT_SEVERITIES, NO_KEYWORD, PRESENT, REQUIRED
from workbench.diagnose.graphlint import lint

HEAD = "import mindspore as ms\nfrom mindspore import nn, ops, mint\nimport mindspore.dataset as ds\n"


def rules(source, head=HEAD):
    return [f.rule for f in lint(head + source)]


def cell(body, parameters="self, x", init=""):
    lines = "\n".join("        " + line for line in body.splitlines())
    return f"class A(nn.Cell):\n{init}    def construct({parameters}):\n{lines}\n"


# The rule, a snippet that breaks it, the same put right.
CASES = [
    ("missing-api", "ops.Mult()", "ops.Mul()"),
    ("missing-api", "@ms.ms_function\ndef f(x): return x", "@ms.jit\ndef f(x): return x"),
    ("missing-api", "from mindspore.ops import operations as P\nP.Where()", "ops.where(c, x, y)"),
    ("missing-api", "from mindspore.nn.transformer import T", "from mindspore.nn import Cell"),
    ("missing-api", "g = ops.GradOperation()\ng.set_grad(True)", "net.set_grad(True)"),
    ("missing-api", "d = ds.TextFileDataset('a')\nd.use_sampler(s)", "d = ds.GeneratorDataset(g)\nd.use_sampler(s)"),
    ("missing-api", "d = ds.GeneratorDataset(g, 'a').batch(2)\nd.to_device()", "d.to_device()"),
    ("missing-api", "d = e.batch(2, drop_remainder=True)\nd = d.to_device()", "d = e.batch(2, drop_remainder=True)"),
    ("use-sampler-result", "d = d.use_sampler(s)", "d.use_sampler(s)"),
    ("unknown-keyword", "ds.DistributedSampler(2, 0, seed=1)", "ds.DistributedSampler(2, 0, shuffle=True)"),
    ("missing-argument", "nn.DynamicLossScaleUpdateCell(loss_scale_value=8)", "nn.DynamicLossScaleUpdateCell(8, 2, 9)"),
    ("return-tensors", "tok(t, return_tensors='ms')", "tok(t, return_tensors='np')"),
    ("seed-by-rank", "ms.set_seed(7 + rank_id)", "ms.set_seed(7)"),
    ("seed-by-rank", "ds.config.set_seed(get_rank())", "ds.config.set_seed(seed)"),
    ("tensor-of-range", "ms.Tensor(range(4))", "ms.Tensor([0, 1])"),
    ("jit-lambda", "f = ms.jit(lambda x: x)", "f = ms.jit(g)"),
    ("small-epsilon", "nn.LayerNorm((8,), epsilon=1e-12)", "nn.LayerNorm((8,), epsilon=1e-5)"),
    ("layer-norm-shape", "nn.LayerNorm(config.hidden_size)", "nn.LayerNorm((config.hidden_size,))"),
    ("in-place-method", "x.add_(y)", "x = x + y"),
    ("in-place-method", "x.zero_()", "x.copy_(y)"),
    ("set-data", "p.set_data(x)", "set_weights(model, weights)"),
    ("worker-count", "d.map(f, num_parallel_workers=8)", "d.map(f, num_parallel_workers=n)"),
    ("mint-optimiser", "mint.optim.SGD(p)", "nn.SGD(p)"),
    ("no-bias-correction", "nn.AdamWeightDecay(p)", "nn.Adam(p)"),
    ("decomposed-loss", "ops.cross_entropy(x, y)", "ops.SparseSoftmaxCrossEntropyWithLogits()(x, y)"),
    ("memory-is-zero", "ms.runtime.max_memory_allocated()", "ms.runtime.empty_cache()"),
    ("no-cpu-kernel", "ops.FloatStatus()", "ms.amp.all_finite(g)"),
    ("gradient-none", "g = ms.grad(f)(x)\nif g is None: pass", "g = ms.grad(f)(x)\nif f is None: pass"),
    (
        "recompute-dropout",
        "class A(nn.Cell):\n def __init__(self):\n  self.d = nn.Dropout(p=0.1)\n  self.b.recompute()",
        "class A(nn.Cell):\n def __init__(self):\n  self.b.recompute()",
    ),
    (
        "plain-cell",
        "class A(nn.Cell):\n def __init__(self):\n  self.c = nn.Cell()\n def construct(self, x):\n  return self.c(x)",
        "class A(nn.Cell):\n def __init__(self):\n  self.c = B()\n def construct(self, x):\n  return self.c(x)",
    ),
    ("not-a-cell", "class A:\n def construct(self, x):\n  return x", cell("return x")),
    ("first-parameter", cell("return x", "s, x"), cell("return x")),
    ("tensor-branch", cell("if x.sum() > 0:\n    x = -x\nreturn x"), cell("if x.shape[0] > 2:\n    x = -x\nreturn x")),
    ("tensor-branch", cell("y = ops.exp(x)\nreturn x if y > 1 else y"), cell("return x if self.flag else -x")),
    ("tensor-branch", cell("while self.f(x) < 3:\n    x = x + 1\nreturn x"), cell("if x is None:\n    return 1\nreturn x")),
    ("argument-branch", cell("if n > 0:\n    x = -x\nreturn x", "self, x, n: int = 0"), cell("return x", "self, x, n")),
    ("trace-branch", "@ms.jit(capture_mode='trace')\ndef f(x):\n if x.sum() > 0: x = -x\n return x", "def f(x): return x"),
    ("tensor-range", cell("for i in range(x.max()):\n    x = x + 1\nreturn x"), cell("for i in range(3):\n    x = x + i\nreturn x")),
    ("long-loop", cell("for i in range(64):\n    x = x + i\nreturn x"), cell("for i in range(8):\n    x = x + i\nreturn x")),
    ("host-read", cell("return x * x.sum().item()"), cell("return x * x.sum()")),
    ("host-read", cell("return x * float(x.sum())"), cell("return x * float(x.shape[0])")),
    ("print", cell("print(x)\nreturn x"), "print(x)"),
    ("slow-arange", cell("return x + ops.arange(3)"), cell("return x + ops.range(0, 3, 1)")),
    ("not-stored", cell("return w * x", init="    def __init__(self, w):\n        self.w = w\n"), cell("return self.w * x")),
]  # fmt: skip
# One branch or loop only, and unsupported syntax: these also go through the compiler below.
ONE_BRANCH = ["if x is not None:\n    y = x\nreturn y", "for i in range(2):\n    y = x\nreturn y"]
ONE_BRANCH += ["for f in self.fs:\n    y = f(x)\nreturn y"]
BOUND = [
    "if self.flag:\n    y = x\nif self.flag:\n    return y\nreturn x",
    "if self.flag:\n    y = x\nelse:\n    return x\nreturn y",
]
BOUND += [
    "y = x\nfor i in range(2):\n    y = y + x\nreturn y",
    "if x is not None:\n    y = x\nelse:\n    y = x + 1\nreturn y",
]
BOUND += ["f = lambda v: v\nreturn f(x)", "return sum([i * x for i in range(3)])", "assert x.shape[0] == 3\nreturn x"]
UNSUPPORTED = [
    "try:\n    x = x * 2\nexcept ValueError:\n    x = x\nreturn x",
    "y = x\ndel y\nreturn x",
    "s = {1, 2}\nreturn x",
]
UNSUPPORTED += [
    "if (y := x.sum()) > 0:\n    return y\nreturn x",
    "for i in range(2):\n    x = x + i\nelse:\n    x = -x\nreturn x",
]
UNSUPPORTED += [
    "import math\nreturn x",
    "match 2:\n    case 2:\n        return x\nreturn -x",
    "class Q:\n    pass\nreturn x",
]
COMPILED = [(b, "one-branch-local") for b in ONE_BRANCH] + [(b, "") for b in BOUND]
COMPILED += [(b, "unsupported-syntax") for b in UNSUPPORTED]


@pytest.mark.parametrize("rule, wrong, right", CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)])
def test_a_rule_finds_the_fault_and_not_its_correction(rule, wrong, right):
    assert rule in rules(wrong)
    assert rule not in rules(right)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    init = "    def __init__(self):\n        super().__init__()\n        self.flag = True\n        self.fs = nn.CellList([nn.ReLU()])\n"
    text = HEAD + "".join(
        cell(body, init=init).replace("class A", f"class A{n}") for n, (body, _) in enumerate(COMPILED)
    )
    (folder / "linted_cells.py").write_text(text)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("linted_cells")
    sys.path.remove(str(folder))


@pytest.mark.parametrize("number", range(len(COMPILED)))
def test_the_compiler_refuses_what_the_lint_calls_an_error(cells, number):
    import mindspore as ms
    import numpy as np

    body, rule = COMPILED[number]
    assert [r for r in rules(cell(body)) if r in ("one-branch-local", "unsupported-syntax")][:1] == [rule] * bool(rule)
    model = getattr(cells, f"A{number}")()
    model.construct = ms.jit(model.construct)
    x = ms.Tensor(np.ones(3, np.float32))
    if rule:
        with pytest.raises((UnboundLocalError, RuntimeError)):
            model(x).asnumpy()
    else:
        model(x).asnumpy()


def find(name):
    """The object with this qualified name in the installed packages; AttributeError if there is none."""
    import mindspore

    found = mindspore
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def test_what_is_said_to_be_absent_is_absent_in_the_installed_version():
    for name in ABSENT:
        with pytest.raises(AttributeError):
            find(name)
    assert all(find(name) is not None for name in PRESENT)


def test_keywords_and_required_arguments_agree_with_the_installed_signatures():
    for name, keyword in NO_KEYWORD:
        parameters = inspect.signature(find(name).__init__).parameters
        assert keyword not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()), name
    for name, arguments in REQUIRED.items():
        found = inspect.signature(find(name).__init__).parameters
        assert [n for n, p in found.items() if p.default is p.empty] == ["self", *arguments]


def test_torch_code_and_plain_python_are_left_alone():
    torch = "import torch\nfrom torch import nn\nclass A(nn.Module):\n def construct(self, x):\n  x.add_(1)\n"
    assert rules(torch, head="") == []
    assert rules("nn = Thing()\nnn.AdamWeightDecay(p)\ntry:\n pass\nfinally:\n del nn", head="") == []


def test_a_cell_of_a_notebook_needs_no_imports_and_may_be_indented():
    found = lint("    class A(nn.Cell):\n        def construct(self, x):\n            return ops.Mult()(x, x)\n")
    assert [(f.line, f.column, f.rule) for f in found] == [(3, 16, "missing-api")]
    assert str(found[0]).startswith("<cell>:3:16: error missing-api: there is no mindspore.ops.Mult; instead ops.Mul")


@pytest.mark.parametrize("source", ["def f(:", "%matplotlib inline", "x = 1\0"])
def test_what_is_no_python_is_one_finding(source):
    assert [(f.rule, f.line) for f in lint(source)] == [("syntax", 1)]


@pytest.mark.parametrize("links, expected", [(40, []), (400, ["too-deep"]), (20000, ["too-deep"])])
def test_a_long_chain_of_calls_is_checked_or_reported_as_not_checked(links, expected):
    assert rules("d = ds.GeneratorDataset(g, 'a')" + ".map(f)" * links, head="") == expected


def test_methods_that_construct_calls_are_compiled_too():
    source = (
        cell("return self.h(x)") + "    def h(this, x):\n        return x\n    def unused(this, x):\n        return x\n"
    )
    assert rules(source) == ["first-parameter"]


@settings(max_examples=60, deadline=None)
@given(st.permutations([c[1] for c in CASES[:24]]), st.integers(1, 6))
def test_findings_are_sorted_known_and_independent_of_order(snippets, count):
    found = lint(HEAD + "\n".join(snippets[:count]), "a.py")
    assert [f.line for f in found] == sorted(f.line for f in found) and len(set(found)) == len(found)
    assert all(f.severity in LINT_SEVERITIES and "\n" not in str(f) for f in found)


def test_our_own_package_has_no_error():
    files = sorted((Path(__file__).parents[1] / "workbench").rglob("*.py"))
    found = [f for path in files for f in lint(path.read_text(encoding="utf-8"), path.name)]
    assert [str(f) for f in found if f.severity != "note"] == []


def test_the_lint_imports_no_mindspore():
    code = "import sys, workbench.diagnose.graphlint; print('mindspore' in sys.modules, 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False False\n"

"""Uses of MindSpore that do not exist, or do something else than they say, found in a syntax tree.

Names are resolved through the file's imports; ``ms``, ``nn``, ``ops``, ``mint`` and ``ds`` that
nothing in the file binds are taken for MindSpore's, as in a notebook cell. In a file that imports
torch that convention and the rules that know a method by its name alone are left out. Costs one
walk over the tree, runs nothing. It does not follow values from one file or function into another.
"""

import ast

from workbench.diagnose.api_rules import (
    ABSENT,
    DEAD_IN_PLACE,
    NO_KEYWORD,
    PRESENT,
    RAISING_IN_PLACE,
    REQUIRED,
    Advice,
)

_CONVENTION = {
    "ms": "mindspore",
    "nn": "mindspore.nn",
    "ops": "mindspore.ops",
    "mint": "mindspore.mint",
    "ds": "mindspore.dataset",
}
_SAME_PLACE = (
    ("mindspore.ops.operations.", "mindspore.ops."),
    ("mindspore.ops.functional.", "mindspore.ops."),
    ("mindspore.common.api.", "mindspore."),
    ("mindspore.context.", "mindspore."),
)
_GRADIENT_MAKERS = ("mindspore.ops.GradOperation", "mindspore.grad", "mindspore.value_and_grad", "mindspore.ops.grad")
_DATASETS = ("TextFileDataset", "GeneratorDataset", "MindDataset", "NumpySlicesDataset", "TFRecordDataset")
_MAKER, _GRADIENTS, _DATASET = "gradient function", "gradients", "mindspore.dataset.Dataset"


class Names:
    """What the names of one file mean: its imports, or the convention where nothing binds a name."""

    def __init__(self, tree: ast.Module) -> None:
        self.aliases: dict[str, str] = {}
        bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        defined = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    self.aliases[name.asname or name.name.split(".")[0]] = (
                        name.name if name.asname else name.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    self.aliases[name.asname or name.name] = f"{node.module or ''}.{name.name}"
        self.bound = {n.id for s in tree.body for n in _own_names(s)} | defined | set(self.aliases)
        self.has_torch = any(q.split(".")[0] == "torch" for q in self.aliases.values())
        if not self.has_torch:
            self.aliases = {**{k: v for k, v in _CONVENTION.items() if k not in bound}, **self.aliases}

    def of(self, node: ast.AST) -> str:
        """The qualified name of an expression like ``ops.Mul``; "" where it is no plain dotted name."""
        first, dot, rest = _dotted(node).partition(".")
        return canonical(self.aliases[first] + dot + rest) if first in self.aliases else ""


def _own_names(statement: ast.stmt) -> list[ast.Name]:
    """The names that a statement of the module binds, outside functions and classes."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return []
    return [n for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _dotted(node: ast.AST) -> str:
    """The text of a plain dotted name like ``self.grad``, "" of anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _last(node: ast.AST) -> str:
    """``c`` of ``a.b.c``, ``c`` of ``c``, "" of anything else."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def canonical(name: str) -> str:
    """The public place of a name that MindSpore exports in several."""
    for inner, public in _SAME_PLACE:
        name = public + name[len(inner) :] if name.startswith(inner) else name
    return name


def advice_on(name: str) -> Advice | None:
    """The row for a qualified name or for the module it stands in."""
    while name:
        if name in ABSENT:
            return Advice("missing-api", "error", f"there is no {name}", ABSENT[name])
        if name in PRESENT:
            return PRESENT[name]
        name = name.rpartition(".")[0]
    return None


class ApiCheck(ast.NodeVisitor):
    """Collects ``found``: (node, Advice) for every use of a row of the tables."""

    def __init__(self, names: Names) -> None:
        self.names, self.found = names, []
        self.origins: dict[str, str] = {}

    def add(self, node: ast.AST, *advice: str) -> None:
        self.found.append((node, Advice(*advice)))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self.origins = self.origins, dict(self.origins)
        self.generic_visit(node)
        self.origins = outer | {k: v for k, v in self.origins.items() if k.startswith("self.")}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for name in node.names:
            advice = advice_on(canonical(f"{node.module}.{name.name}"))
            if advice and advice.rule == "missing-api":
                self.found.append((node, advice))

    def visit_Name(self, node: ast.Name) -> None:
        self.visit_Attribute(node)

    def visit_Attribute(self, node: ast.Attribute | ast.Name) -> None:
        advice = advice_on(self.names.of(node))
        # A name that is absent was reported at its import, where the error is raised.
        if advice and not (isinstance(node, ast.Name) and advice.rule == "missing-api"):
            self.found.append((node, advice))
        elif not advice:
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        if isinstance(node.value, ast.Call) and getattr(node.value.func, "attr", "") == "use_sampler":
            what = "use_sampler changes the data set in place and returns None"
            self.add(node, "use-sampler-result", "error", what, "call it without an assignment")
        for target in node.targets:
            self.bind(target, self.origin(node.value))

    def visit_For(self, node: ast.For) -> None:
        wrapped = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) in ("enumerate", "zip")
        if _GRADIENTS in [self.origin(n) for n in (node.iter.args if wrapped else [node.iter])]:
            self.bind(node.target, _GRADIENTS)
        self.generic_visit(node)

    def bind(self, target: ast.AST, origin: str) -> None:
        for part in ast.walk(target):
            if isinstance(part, (ast.Name, ast.Attribute)):
                self.origins[_dotted(part)] = origin

    def origin(self, node: ast.AST) -> str:
        """Which API made this value: a qualified name, one of the three kinds above, or ""."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.origins.get(_dotted(node), "")
        if not isinstance(node, ast.Call):
            return ""
        made, func = self.names.of(node.func), node.func
        if made:
            return _MAKER if made in _GRADIENT_MAKERS else made
        before = self.origin(func)
        if before in (_MAKER, _GRADIENTS):
            return _GRADIENTS
        if isinstance(func, ast.Attribute):
            given, owner = {k.arg for k in node.keywords}, self.origin(func.value)
            if {"batch": "drop_remainder", "map": "operations"}.get(func.attr) in given:
                return owner or _DATASET
            return owner if owner.startswith("mindspore.dataset.") else ""
        return ""

    def visit_Compare(self, node: ast.Compare) -> None:
        none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
        if none and self.origin(node.left) == _GRADIENTS:
            what = "a gradient is never None: for a parameter that is not used it is all zeros"
            self.add(node, "gradient-none", "error", what, "compare its largest absolute value with 0")
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        dropout = [c for c in calls if self.names.of(c.func) == "mindspore.nn.Dropout"]
        again = [c for c in calls if _last(c.func) == "recompute"]
        if dropout and again:
            what = "nn.Dropout in a recomputed Cell draws another mask in the backward pass: wrong gradients on the CPU"
            self.add(dropout[0], "recompute-dropout", "warning", what, "dropout 0, or give the mask as an input")
        methods = {
            n.name for n in node.body if isinstance(n, ast.FunctionDef) and not isinstance(n.body[-1], ast.Raise)
        }
        if "construct" in methods and not node.bases and "__call__" not in methods:
            what = f"{node.name} has construct but is no Cell: calling it raises TypeError"
            self.add(node, "not-a-cell", "error", what, f"class {node.name}(nn.Cell)")
        outer, self.origins = self.origins, {k: v for k, v in self.origins.items() if not k.startswith("self.")}
        self.generic_visit(node)
        for call in calls:
            used = [call.func] + (call.args[:1] if _last(call.func) == "recompute" else [])
            if any(self.origins.get(_dotted(n)) == "mindspore.nn.Cell" for n in used):
                what = "a plain nn.Cell() has no construct: calling it raises AttributeError"
                self.add(call, "plain-cell", "error", what, "a Cell class with a construct, or nn.SequentialCell")
        self.origins = outer

    def visit_Call(self, node: ast.Call) -> None:
        name, given = self.names.of(node.func), {k.arg: k.value for k in node.keywords}
        short = name.removeprefix("mindspore.")
        for keyword in given:
            if (name, keyword) in NO_KEYWORD:
                self.add(node, "unknown-keyword", "error", f"{short} takes no {keyword}=", NO_KEYWORD[name, keyword])
        missing = [a for a in REQUIRED.get(name, ())[len(node.args) :] if a not in given]
        if missing and None not in given and not any(isinstance(a, ast.Starred) for a in node.args):
            self.add(node, "missing-argument", "error", f"{short} needs {', '.join(missing)} too", "name all of them")
        tensors = given.get("return_tensors")
        if isinstance(tensors, ast.Constant) and tensors.value == "ms":
            what = 'return_tensors="ms" raises ValueError: transformers knows pt, np and mlx'
            self.add(node, "return-tensors", "error", what, 'return_tensors="np", and int32 arrays')
        if name in ("mindspore.set_seed", "mindspore.dataset.config.set_seed") and "rank" in ast.unparse(node).lower():
            what = (
                "a seed that differs by rank: each rank shuffles for itself, a third of the rows is missed on 8 ranks"
            )
            self.add(node, "seed-by-rank", "error", what, "one seed on all ranks; another stream for dropout only")
        if name == "mindspore.Tensor" and node.args and ast.unparse(node.args[0]).startswith("range("):
            self.add(node, "tensor-of-range", "error", "Tensor(range(n)) raises TypeError", "ops.range(0, n, 1)")
        if name == "mindspore.jit" and node.args and isinstance(node.args[0], ast.Lambda):
            what = "jit of a lambda fails: Parse Lambda Function Fail"
            self.add(node, "jit-lambda", "error", what, "a def in a file")
        if _last(node.func).endswith("Norm") and (not name or name.startswith("mindspore.")):
            for eps in (v for k, v in given.items() if k in ("eps", "epsilon") and isinstance(v, ast.Constant)):
                if isinstance(eps.value, float) and eps.value < 1e-7:
                    what = f"epsilon {eps.value:g} is 0 in float16: the gradient of a constant row is not finite"
                    self.add(node, "small-epsilon", "warning", what, "1e-5, computed in float32")
        if name == "mindspore.nn.LayerNorm" and node.args:
            last = ast.unparse(node.args[0]).rpartition(".")[2]
            if last.isdigit() or (last.isidentifier() and last.endswith("_size")):
                what = "LayerNorm of a whole number raises TypeError"
                self.add(node, "layer-norm-shape", "error", what, f"a tuple: ({ast.unparse(node.args[0])},)")
        if isinstance(node.func, ast.Attribute):
            self.method(node, node.func, given)
        self.generic_visit(node)

    def method(self, node: ast.Call, func: ast.Attribute, given: dict[str | None, ast.AST]) -> None:
        made, at = self.origin(func.value), func.attr
        if made in (_MAKER, "mindspore.ops.GradOperation") and at == "set_grad":
            made = "mindspore.ops.GradOperation"
        elif made.startswith("mindspore.dataset.") and at == "to_device":
            made = _DATASET
        if f"{made}.{at}" in ABSENT:
            self.found.append((func, advice_on(f"{made}.{at}")))
        workers = given.get("num_parallel_workers")
        if isinstance(workers, ast.Constant) and isinstance(workers.value, int) and workers.value > 1:
            what = f"num_parallel_workers={workers.value} raises ValueError on a machine with fewer cores"
            self.add(workers, "worker-count", "note", what, f"min({workers.value}, os.cpu_count())")
        if self.names.has_torch or self.names.of(func):
            return
        if at in DEAD_IN_PLACE or at in RAISING_IN_PLACE:
            does = "leaves the tensor as it was, without an error" if at in DEAD_IN_PLACE else "has no kernel"
            self.add(node, "in-place-method", "error", f"on the CPU, in PyNative, .{at}() {does}", "x = x + y")
        elif at in ("set_data", "assign_value"):
            what = f".{at}() after the step was compiled leaves the graph on the old memory"
            self.add(
                node, "set-data", "note", what, "workbench.model.weights.set_weights, or do it before the first step"
            )

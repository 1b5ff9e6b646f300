"""Static-graph-first: a lint for Cells and training code that shall compile under MindSpore 2.10.

    for finding in lint(Path("model.py").read_text(), "model.py"):
        print(finding)

Looks at what ``jit`` and GRAPH_MODE compile (``construct``, functions given to ``jit``, methods
they call on ``self``) with the rules below, and at every call with those of ``api_check.py``.
``error``: does not run, or is silently wrong; ``warning``: slow or risky; ``note``: worth knowing.
Times in the texts: 2 CPU cores. Reads the source with ``ast`` only: executes nothing, imports no
MindSpore; a few ms per file. It sees one file at a time and guesses what is a tensor from the
parameters and from operators, so it misses what other functions return.
"""

import ast
import builtins
import re
import textwrap

from workbench.diagnose.api_check import ApiCheck, Names
from workbench.diagnose.api_rules import Advice, LintFinding

_LONG_LOOP = 64
_DEEPEST = 120  # levels of the syntax tree that the recursive walk takes within Python's limit
_UNSUPPORTED = (
    *(ast.Try, ast.TryStar, ast.Match, ast.Delete, ast.Import, ast.ImportFrom),
    *(ast.ClassDef, ast.Set, ast.NamedExpr, ast.Yield, ast.YieldFrom),
)
_FUNCTION = (ast.FunctionDef, ast.Lambda)
_TENSOR_METHODS = {"abs", "all", "any", "argmax", "astype", "max", "mean", "min", "norm", "reshape", "sum", "view"}
_HOST_METHODS = {"item", "asnumpy"}
# What the compiler knows without the tensor's values.
_KNOWN = re.compile(
    r"shape|d_?type|type_?of|subclass|rank|ndim|check|need|valid|^(dim|size|numel|type)$|^_?(is|has|get)_", re.I
)
_KINDS = ("tensor", "number", "argument")


def lint(source: str, file: str = "<cell>") -> list[LintFinding]:
    """The findings in Python ``source``, by line; a syntax error is one finding. ``file`` is only printed."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError) as error:
        what = f"this is no Python: {getattr(error, 'msg', error)}"
        at = (getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1)
        return [LintFinding(file, *at, "syntax", "error", what, "correct the line")]
    except (RecursionError, MemoryError):  # what the parser itself raises for very deep nesting
        tree = None
    if tree is None or _depth(tree) > _DEEPEST:
        what = "an expression is nested too deeply, as in generated code: the file was not checked"
        return [LintFinding(file, 1, 1, "too-deep", "warning", what, "split the expression")]
    names = Names(tree)
    api = ApiCheck(names)
    api.visit(tree)
    found = list(api.found)
    for function, owner, trace in _compiled(tree, names):
        found += _GraphCheck(names, function, owner, trace).run()
    return sorted({LintFinding(file, n.lineno, n.col_offset + 1, **vars(advice)) for n, advice in found})


def _depth(tree: ast.AST) -> int:
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _compiled(tree: ast.Module, names: Names) -> list[tuple[ast.FunctionDef, ast.ClassDef | None, bool]]:
    """(function, its class, whether captured by tracing) of everything that a compilation reads."""
    jitted = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and names.of(node.func) == "mindspore.jit":
            trace = any(k.arg == "capture_mode" and ast.unparse(k.value) in ("'trace'",) for k in node.keywords)
            jitted |= {ast.unparse(a): trace for a in node.args[:1]}
    found = []

    def visit(node: ast.AST, owner: ast.ClassDef | None) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                modes = [
                    isinstance(d, ast.Call) and "'trace'" in ast.unparse(d)
                    for d in child.decorator_list
                    if names.of(d.func if isinstance(d, ast.Call) else d) == "mindspore.jit"
                ]
                if modes or child.name in jitted or (owner and child.name == "construct" and not names.has_torch):
                    found.append((child, owner, any(modes) or jitted.get(child.name, False)))
            visit(child, child if isinstance(child, ast.ClassDef) else owner if isinstance(child, ast.If) else None)

    visit(tree, None)
    for function, owner, trace in found:  # grows while it is read: methods that compiled ones call
        for method in owner.body if owner else ():
            if isinstance(method, ast.FunctionDef) and not method.decorator_list:
                called = f"self.{method.name}("
                if called in ast.unparse(function) and method not in [f for f, _, _ in found]:
                    found.append((method, owner, trace))
    return found


class _GraphCheck:
    """The rules for one compiled function, statement by statement in the order of the text."""

    def __init__(self, names: Names, function: ast.FunctionDef, owner: ast.ClassDef | None, trace: bool) -> None:
        self.names, self.function, self.owner, self.trace = names, function, owner, trace
        self.found: list[tuple[ast.AST, Advice]] = []
        self.kinds: dict[str, str] = {}
        self.maybe: set[str] = set()
        methods = [n for n in (owner.body if owner else ()) if isinstance(n, ast.FunctionDef)]
        self.python = {m.name for m in methods if m.decorator_list}  # constexpr and the like: not compiled
        arguments = function.args
        named = [*arguments.posonlyargs, *arguments.args]
        # Other methods of a Cell are also called with numbers that are known beforehand.
        self.entry = owner is None or function.name == "construct"
        self.static = any(ast.unparse(d) in ("staticmethod", "classmethod") for d in function.decorator_list)
        defaults = [None] * (len(named) - len(arguments.defaults)) + list(arguments.defaults)
        for argument, default in list(zip(named, defaults))[1 if owner and not self.static else 0 :]:
            note = ast.unparse(argument.annotation) if argument.annotation else ""
            value = default.value if isinstance(default, ast.Constant) else None
            if note not in ("bool", "str") and not isinstance(value, (bool, str)):
                self.kinds[argument.arg] = "tensor" if note.endswith("Tensor") else "argument"
        if arguments.vararg:
            self.kinds[arguments.vararg.arg] = "argument"
        every = [*named, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self.parameters = {a.arg for a in every if a}

    def add(self, node: ast.AST, *advice: str) -> None:
        self.found.append((node, Advice(*advice)))

    def run(self) -> list[tuple[ast.AST, Advice]]:
        first = self.function.args.args[:1]
        if self.owner and not self.static and first and first[0].arg != "self":
            what = f"the first parameter is {first[0].arg}: the compiler counts one argument too few"
            self.add(first[0], "first-parameter", "error", what, "name it self")
        for node in ast.walk(self.function):
            self.syntax(node)
        self.block(self.function.body, set(self.parameters))
        self.unstored()
        return self.found

    def syntax(self, node: ast.AST) -> None:
        kind = type(node).__name__
        if isinstance(node, _UNSUPPORTED):
            self.add(
                node, "unsupported-syntax", "error", f"{kind} does not compile", "take it out of the compiled part"
            )
        elif isinstance(node, (ast.For, ast.While)) and node.orelse:
            what = f"{kind} with else does not compile"
            self.add(node, "unsupported-syntax", "error", what, "a statement after the loop")
        elif isinstance(node, ast.Call) and self.names.of(node.func) == "mindspore.ops.arange":
            what = "each ops.arange costs 0.5 s of compilation"
            self.add(node, "slow-arange", "warning", what, "ops.range(0, n, 1), 0.04 s, or a constant made in __init__")

    def kind(self, node: ast.AST | None) -> str:
        """ "tensor", "number" (read from a tensor), "argument" (a tensor or a Python value), or ""."""
        if isinstance(node, ast.Name):
            return self.kinds.get(node.id, "")
        if isinstance(node, ast.Attribute):
            return self.kind(node.value) if node.attr in ("T", "mT") else ""
        if isinstance(node, (ast.Subscript, ast.Starred, ast.NamedExpr)):
            return self.kind(node.value)
        if isinstance(node, ast.UnaryOp):
            return self.kind(node.operand)
        if isinstance(node, ast.Call):
            return self.kind_of_call(node)
        parts: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            if not all(isinstance(op, (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops):
                return ""
            if any(isinstance(p, ast.Constant) and isinstance(p.value, (str, type(None))) for p in parts):
                return ""
        elif isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        return min((k for k in map(self.kind, parts) if k), key=_KINDS.index, default="")

    def kind_of_call(self, node: ast.Call) -> str:
        func, inputs = node.func, [*node.args, *(k.value for k in node.keywords)]
        given = any(self.kind(a) for a in inputs)
        name = self.names.of(func.func if isinstance(func, ast.Call) else func)
        if name.startswith(("mindspore.ops.", "mindspore.mint.")):
            return "tensor" if given and not _KNOWN.search(name.rpartition(".")[2]) else ""
        if isinstance(func, ast.Call):  # self.grad(net)(x)
            return "tensor" if given and ast.unparse(func.func).startswith("self.") else ""
        if isinstance(func, ast.Attribute):
            owner = self.kind(func.value)
            if owner and func.attr in _HOST_METHODS:
                return "number"
            if owner:
                known = _KNOWN.search(func.attr) or (owner == "argument" and func.attr not in _TENSOR_METHODS)
                return "" if known else "tensor"
            stored = isinstance(func.value, ast.Name) and func.value.id == "self" and func.attr not in self.python
            return "tensor" if stored and given and not _KNOWN.search(func.attr) else ""
        if isinstance(func, ast.Name) and func.id in ("abs", "min", "max", "sum", "float", "int", "bool"):
            kind = max((self.kind(a) for a in inputs), key=lambda k: (*_KINDS, "")[::-1].index(k), default="")
            return "number" if kind == "tensor" and func.id in ("float", "int", "bool") else kind
        return ""

    def condition(self, test: ast.AST) -> None:
        kind = self.kind(test)
        if kind in ("tensor", "number"):
            if self.trace:
                what = "tracing keeps the branch of the first call for all calls"
                self.add(test, "trace-branch", "error", what, "ops.where, or capture_mode='ast'")
            what = (
                "the condition is computed: both branches are compiled and must agree in dtype, the choice costs time"
            )
            self.add(test, "tensor-branch", "warning", what, "a mask in the arithmetic, or ops.where")
        elif self.entry and any(isinstance(n, ast.Compare) and self.kind(n) for n in ast.walk(test)):
            what = "the condition is an argument: a Python number compiles the whole graph anew for each value"
            self.add(test, "argument-branch", "note", what, "settle it in __init__, or pass a tensor and a mask")

    def reads(self, node: ast.AST, bound: set[str]) -> None:
        """Everything in one expression or simple statement: calls, and names that may not exist."""
        inner = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for part in ast.walk(node):
            if isinstance(part, ast.IfExp):
                self.condition(part.test)
            elif isinstance(part, ast.Call):
                self.call(part)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in self.maybe - bound:
                if part.id not in inner or isinstance(node, (ast.Assign, ast.AugAssign)):
                    what = f"{part.id} is bound in one branch or in a loop only: UnboundLocalError when compiled"
                    self.add(part, "one-branch-local", "error", what, f"give {part.id} a value before")
                    self.maybe.discard(part.id)

    def call(self, node: ast.Call) -> None:
        func, name = node.func, getattr(node.func, "id", "")
        read = isinstance(func, ast.Attribute) and func.attr in _HOST_METHODS and self.kind(func.value)
        cast = name in ("float", "int") and node.args and self.kind(node.args[0]) == "tensor"
        if read or cast:
            what = f"{ast.unparse(func).rpartition('.')[2]}() waits for the tensor's value inside the compiled part"
            self.add(node, "host-read", "warning", what, "stay with tensors, read the result after the call")
        elif name == "print":
            self.add(node, "print", "note", "print makes every call wait for the value", "return it and print outside")
        elif name == "range" and any(self.kind(a) == "tensor" for a in node.args):
            self.add(node, "tensor-range", "error", "range() of a tensor raises TypeError", "a Python int, or while")

    def bind(self, target: ast.AST, kind: str, bound: set[str]) -> None:
        for part in ast.walk(target):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                self.kinds[part.id] = kind
                bound.add(part.id)

    def block(self, body: list[ast.stmt], bound: set[str]) -> bool:
        """Follow the statements; ``bound`` grows. True if the end of ``body`` is not reached."""
        return any([self.statement(node, bound) for node in body])

    def statement(self, node: ast.stmt, bound: set[str]) -> bool:
        if isinstance(node, ast.If):
            self.condition(node.test)
            self.reads(node.test, bound)
            yes, no = set(bound), set(bound)
            ends = self.block(node.body, yes), self.block(node.orelse, no)
            # A condition on self alone is settled before compiling, and only its branch is compiled.
            settled = any(isinstance(n, ast.Name) and n.id == "self" for n in ast.walk(node.test))
            after = no if ends[0] else yes if ends[1] else yes | no if settled else yes & no
            self.maybe |= (yes | no) - after if not any(ends) else set()
            bound |= after
            return all(ends)
        if isinstance(node, (ast.For, ast.While)):
            self.reads(node.iter if isinstance(node, ast.For) else node.test, bound)
            inside = set(bound)
            if isinstance(node, ast.For):
                self.loop(node)
                self.bind(node.target, self.kind(node.iter), bound)
                inside |= bound
            else:
                self.condition(node.test)
            self.block(node.body, inside)
            self.maybe |= inside - bound
            return False
        if isinstance(node, _FUNCTION):
            bound.add(node.name)
            return False
        self.reads(node, bound)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.bind(target, self.kind(node.value), bound)
        return isinstance(node, (ast.Return, ast.Raise, ast.Break, ast.Continue))

    def loop(self, node: ast.For) -> None:
        count = re.fullmatch(r"range\((\d+)\)", ast.unparse(node.iter))
        if count and int(count[1]) >= _LONG_LOOP:
            what = f"the loop is unrolled {count[1]} times; 256 additions take 1.5 s to compile, 64 take 0.4 s"
            self.add(node, "long-loop", "note", what, "one batched operator")

    def unstored(self) -> None:
        """Names of __init__'s parameters that construct uses as if they were its own."""
        inits = [m for m in (self.owner.body if self.owner else ()) if getattr(m, "name", "") == "__init__"]
        own = {a.arg for m in inits for a in [*m.args.args, *m.args.kwonlyargs]}
        names = [n for n in ast.walk(self.function) if isinstance(n, ast.Name)]
        local = self.parameters | {n.id for n in names if not isinstance(n.ctx, ast.Load)} | set(self.names.bound)
        for node in names:
            if node.id in own - local and not hasattr(builtins, node.id):
                what = f"{node.id} is a parameter of __init__ that was not stored: NameError"
                self.add(node, "not-stored", "error", what, f"self.{node.id}, stored in __init__")

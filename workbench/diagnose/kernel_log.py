"""The kernel log read for processes that were killed for memory and for crashes.

Understands the forms that Linux has printed since 2.6: ``Kill process`` announcing and ``Killed
process`` reporting (old kernels, two lines), ``Out of memory: Killed process`` (5.x, one line),
``Memory cgroup out of memory`` (a container's limit) and the ``oom-kill:constraint=`` line before
it, each with any prefix (dmesg seconds, dmesg -T, syslog, journal). Costs one pass over the text.
It runs no command: give it what ``dmesg`` or ``journalctl -k`` printed. A plain
``grep -i "killed process"`` misses the announcing lines, which are all that is left where a log was
cut. All sizes are host memory; device memory never appears in the kernel log.
"""

import re
from dataclasses import dataclass, replace

_KILLED = re.compile(r"\bKilled process (?P<pid>\d+),? \((?P<name>.{0,64})\)(?=[,\s:]|$)(?P<rest>.*)", re.IGNORECASE)
_ANNOUNCED = re.compile(
    r"\bKill process (?P<pid>\d+),? \((?P<name>.{0,64})\)(?=[,\s:]|$)(?:.*?\bscore (?P<score>\d+))?", re.IGNORECASE
)
_CONSTRAINT = re.compile(r"\boom-kill:constraint=(?P<constraint>\w+)(?P<rest>.*)")
_TASK_IN = re.compile(r"\bTask in (?P<task>\S+) killed as a result of limit of (?P<limit>\S+)")
_CRASH = re.compile(
    r"(?P<name>[^\s\[\]]+)\[(?P<pid>\d+)\]:? (?P<what>segfault at|trap |general protection|bus error).*", re.IGNORECASE
)
_USERSPACE = re.compile(
    r"systemd-oomd\S*: Killed |earlyoom\S*: .*(?:SIGKILL|sending)|result 'oom-kill'|killed by the OOM killer",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class OomKill:
    """One process killed because host memory ran out. Sizes in kB; None where the line does not say.

    ``scope`` is ``"cgroup"`` (a container's or job's limit) or ``"global"`` (the machine);
    ``constraint`` the kernel's word for it, ``cgroup`` the one whose limit was hit, ``line`` the
    line of the log it rests on.
    """

    pid: int
    name: str
    scope: str
    line: str
    total_vm_kb: int | None = None
    anon_rss_kb: int | None = None
    file_rss_kb: int | None = None
    shmem_rss_kb: int | None = None
    score: int | None = None
    constraint: str | None = None
    cgroup: str | None = None

    @property
    def rss_kb(self) -> int | None:
        """Resident host memory when it was killed: anonymous + file + shared, kB."""
        parts = (self.anon_rss_kb, self.file_rss_kb, self.shmem_rss_kb)
        return None if self.anon_rss_kb is None else sum(p or 0 for p in parts)


@dataclass(frozen=True)
class Crash:
    """One segfault (or similar) line of the kernel log."""

    pid: int
    name: str
    line: str


def parse_kernel_log(text: str) -> list[OomKill]:
    """Every OOM kill in ``text``, in order. Lines that are none of the known forms are passed over."""
    kills: list[OomKill] = []
    context: dict[str, str] = {}  # fields of the constraint line that the next kill belongs to
    announced = False  # the last record is a "Kill process" line whose "Killed process" is to come
    for line in text.splitlines():
        line = line.strip()
        if match := _CONSTRAINT.search(line):
            context = {"constraint": match["constraint"], **_pairs(match["rest"])}
            announced = False
        elif match := _TASK_IN.search(line):
            context = {"constraint": "CONSTRAINT_MEMCG", "oom_memcg": match["limit"], "task_memcg": match["task"]}
            announced = False
        elif match := _KILLED.search(line):
            before = kills.pop() if announced else None
            kills.append(_kill(match, line, context, before))
            # One constraint line may be followed by a whole cgroup being killed, so it stays open
            # until another begins; a victim of another pid keeps the cgroup but is not "the task".
            announced = False
        elif match := _ANNOUNCED.search(line):
            kills.append(_kill(match, line, context, None))
            announced = True
        elif "invoked oom-killer" in line:
            context, announced = {}, False
    return kills


def parse_crashes(text: str) -> list[Crash]:
    """Every segfault, trap or protection fault in ``text``, in order."""
    found = []
    for line in text.splitlines():
        if match := _CRASH.search(line):
            found.append(Crash(int(match["pid"]), match["name"], line.strip()))
    return found


def userspace_kills(text: str) -> list[str]:
    """Lines of a journal in which systemd or a memory daemon says it killed for memory (they name no pid)."""
    return [line.strip() for line in text.splitlines() if _USERSPACE.search(line)]


def _pairs(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _kb(field: str, text: str) -> int | None:
    found = re.search(rf"\b{field}:\s*(\d+)\s*kB", text)
    return int(found[1]) if found else None


def _kill(match: re.Match[str], line: str, context: dict[str, str], before: OomKill | None) -> OomKill:
    """The record of one line; ``before`` is the announcement it completes, perhaps of another process."""
    rest = match.groupdict().get("rest") or ""
    score = match.groupdict().get("score")
    memcg = context.get("constraint") == "CONSTRAINT_MEMCG"
    if "out of memory" in line.lower() and memcg != ("cgroup out of memory" in line.lower()):
        memcg, context = not memcg, {}  # the line itself says otherwise: its own constraint line was lost
    kill = OomKill(
        pid=int(match["pid"]),
        name=match["name"],
        scope="cgroup" if memcg else "global",
        line=line,
        total_vm_kb=_kb("total-vm", rest),
        anon_rss_kb=_kb("anon-rss", rest),
        file_rss_kb=_kb("file-rss", rest),
        shmem_rss_kb=_kb("shmem-rss", rest),
        score=int(score) if score else None,
        constraint=context.get("constraint"),
        cgroup=context.get("oom_memcg"),
    )
    if before is None:
        return kill
    # The old two-line form: the scope and score stand only in the announcement. The kernel may
    # announce a parent and kill its child; the score is then not the victim's.
    same = before.pid == kill.pid
    return replace(kill, scope=before.scope, score=before.score if same else None)

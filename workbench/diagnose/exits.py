"""An exit code and what was printed, turned into a named cause.

137 is 128 + 9: the process got SIGKILL. The kernel's out-of-memory killer sends it, but so do
``kill -9``, a scheduler, a container runtime and msrun itself, so 137 alone proves nothing: it takes
a record in the kernel log or in the cgroup's ``memory.events``. Running out of *device* memory is a
Python error with exit code 1, and no kernel log knows of it.

Costs one pass over the texts. It runs no command and reads no file.
"""

import re
import signal

from workbench.diagnose.findings import Finding
from workbench.diagnose.kernel_log import OomKill, parse_crashes, parse_kernel_log, userspace_kills
from workbench.errors import SettingError

# The words of MindSpore 2.10's memory pool and of CANN; 207001 is ACL_ERROR_RT_MEMORY_ALLOCATION.
_DEVICE_OOM = re.compile(
    r"memory not enough|memory isn't enough|(?:NPU|CUDA|GPU|device) out of memory|out of memory, alloc|"
    r"\bEL0004\b|rtMalloc\w* (?:fail|execute failed)|\b207001\b|Memory_Allocation_Failure",
    re.IGNORECASE,
)
_ERROR_LINE = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*|:)?$")
_MSRUN_KILLS = re.compile(r"worker exits with exception, kill all other workers", re.IGNORECASE)


def classify_exit(
    code: int, kernel_log: str = "", cgroup_events: str = "", output_tail: str = "", pid: int | None = None
) -> Finding:
    """Why a process ended.

    ``code`` as a shell gives it (0..255) or as ``subprocess`` gives it (-9 for SIGKILL);
    ``kernel_log`` from ``dmesg`` or ``journalctl -k``; ``cgroup_events`` the text of the job's
    ``memory.events``; ``output_tail`` the end of its output; ``pid`` its process id as the host sees
    it. With a ``pid`` only a kernel record of that pid counts. Raises SettingError for another code.
    """
    if isinstance(code, bool) or not isinstance(code, int) or not -64 <= code <= 255:
        raise SettingError(f"exit code {code!r} is not allowed: 0 to 255, or minus a signal number (-9)")
    shown = f"exit code {code}"
    if code < 0:
        code = 128 - code
    device = _first_line(_DEVICE_OOM, output_tail)
    # A failed allocation raises (1) and may abort or crash while the process is torn down. With any
    # other code it is only a line in the log: the memory pool warns before it tries again.
    if device and code in (1, 134, 139):
        return _device_out_of_memory(shown, device)
    if code == 0:
        return Finding(
            "finished", "exit", "note", (shown,), "nothing to do for the process; look at memory and loss below"
        )
    if code == 1:
        return _python_error(shown, output_tail)
    if code == 2:
        evidence = (shown, *_last_lines(output_tail, 1))
        return Finding(
            "wrong usage", "exit", "fatal", evidence, "read the message; change the setting or option it names"
        )
    if code == 137:
        return _killed(shown, kernel_log, cgroup_events, output_tail, pid, device)
    if code == 139:
        return _crashed(shown, kernel_log, output_tail, pid)
    if code in _SIGNALS:
        cause, severity, next_step = _SIGNALS[code]
        return Finding(cause, "exit", severity, (shown, *_last_lines(output_tail, 1)), next_step)
    if code in (126, 127):
        evidence = (shown, *_last_lines(output_tail, 1))
        return Finding(
            "command not found", "exit", "fatal", evidence, "check the command, its path and the environment"
        )
    name = _signal_name(code - 128) if code > 128 else None
    if name:
        return Finding(
            f"killed by {name}",
            "exit",
            "fatal",
            (f"{shown} = 128 + {code - 128} ({name})",),
            "find out who sent the signal",
        )
    return Finding(
        "unknown exit code",
        "exit",
        "fatal",
        (shown, *_last_lines(output_tail, 3)),
        "the program chose this code: read its output",
    )


_SIGNALS = {
    130: ("interrupted", "warning", "someone pressed Ctrl-C (SIGINT); resume from the last checkpoint"),
    143: (
        "asked to stop",
        "warning",
        "SIGTERM: a time limit, a preemption or a container stop; read the scheduler's log, resume from a checkpoint",
    ),
    134: (
        "aborted",
        "fatal",
        "SIGABRT: an assertion or an uncaught C++ exception; read the last lines of the output and the C++ call stack",
    ),
}


def last_error(output: str) -> str | None:
    """The exception line of the last traceback in ``output``, or None.

    MindSpore adds sections after it (C++ call stack, "For details"), so it is the first line after
    the traceback's frames, not the last line of the output.
    """
    lines = output.splitlines()
    starts = [i for i, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if not starts:
        return None
    head = lines[starts[-1]]
    indent = len(head) - len(head.lstrip())
    for line in lines[starts[-1] + 1 :]:
        body = line[indent:] if not line[:indent].strip() else line
        if body and not body[0].isspace() and _ERROR_LINE.match(body.rstrip()):
            return body.strip()
    return None


def _device_out_of_memory(shown: str, line: str) -> Finding:
    return Finding(
        "device out of memory",
        "exit",
        "fatal",
        (shown, line),
        "lower batch_size or sequence_length, or set recompute=block; on the CPU device this means host memory",
    )


def _python_error(shown: str, output: str) -> Finding:
    error = last_error(output)
    if error is None:
        evidence = (shown, *(_last_lines(output, 3) or ("no output was given",)))
        return Finding(
            "program error", "exit", "fatal", evidence, "keep the program's error output: no traceback in it"
        )
    if error.split(":")[0] in ("MemoryError", "numpy.core._exceptions._ArrayMemoryError"):
        return Finding(
            "host allocation refused",
            "exit",
            "fatal",
            (shown, error),
            "one allocation was larger than the memory left: load the data in parts, or raise the memory limit",
        )
    return Finding(
        "Python error", "exit", "fatal", (shown, error), "read the traceback above this line; mend it and resume"
    )


def _killed(
    shown: str, kernel_log: str, cgroup_events: str, output: str, pid: int | None, device: str | None
) -> Finding:
    shown = f"{shown} = SIGKILL"
    kills = parse_kernel_log(kernel_log)
    mine = [k for k in kills if pid is None or k.pid == pid]
    count = _oom_kill_count(cgroup_events)
    if mine:
        return _host_out_of_memory(shown, mine[-1], count)
    if count:
        return Finding(
            "host out of memory",
            "exit",
            "fatal",
            (shown, f"memory.events of the cgroup: oom_kill {count}"),
            "the job's memory limit was hit: raise it, or find what grows (layer memory); earlier jobs may count too",
        )
    daemon = userspace_kills(kernel_log)
    if daemon and pid is None:
        return Finding(
            "host out of memory",
            "exit",
            "fatal",
            (shown, daemon[-1]),
            "a memory daemon killed the job: find what grows (layer memory)",
        )
    evidence = [shown]
    if kills:
        others = ", ".join(f"{k.pid} ({k.name})" for k in kills[-3:])
        evidence.append(f"the kernel log has OOM kills, but of other processes than {pid}: {others}")
    elif kernel_log.strip():
        evidence.append("the kernel log given has no OOM record")
    else:
        evidence.append("no kernel log was given")
    if count == 0:
        evidence.append("memory.events of the cgroup: oom_kill 0")
    if device:
        evidence.append(f"the output speaks of device memory: {device}")
    if msrun := _first_line(_MSRUN_KILLS, output):
        evidence.append(msrun)
        next_step = "msrun killed this rank because another rank failed first: classify the exit of each other rank"
    elif kills:
        next_step = (
            "compare the pid as the host sees it (inside a container it differs); else look for kill -9, "
            "a scheduler's limit or a timeout"
        )
    elif kernel_log.strip():
        next_step = "look for kill -9, the scheduler's log (time or memory limit), docker inspect, timeout -s KILL"
    else:
        next_step = (
            "run dmesg -T or journalctl -k on the host and read memory.events of the cgroup, then classify again"
        )
    return Finding("killed from outside", "exit", "fatal", tuple(evidence), next_step)


def _host_out_of_memory(shown: str, kill: OomKill, count: int | None) -> Finding:
    evidence = [shown, kill.line]
    if kill.rss_kb is not None:
        evidence.append(f"process {kill.pid} ({kill.name}) held {kill.rss_kb / 2**20:.2f} GiB of host memory")
    if kill.scope == "cgroup":
        evidence.append(f"the limit hit was that of the cgroup {kill.cgroup or '(not named)'}")
        next_step = "raise the container's or job's memory limit, or find what grows (layer memory)"
    else:
        evidence.append("the machine itself ran out of memory")
        next_step = (
            "find what grows (layer memory), lower num_parallel_workers and batch_size, or see what else ran there"
        )
    if count:
        evidence.append(f"memory.events of the cgroup: oom_kill {count}")
    return Finding("host out of memory", "exit", "fatal", tuple(evidence), next_step)


def _crashed(shown: str, kernel_log: str, output: str, pid: int | None) -> Finding:
    crashes = [c for c in parse_crashes(kernel_log) if pid is None or c.pid == pid]
    evidence = (f"{shown} = SIGSEGV", *(c.line for c in crashes[-1:]), *_last_lines(output, 1))
    return Finding(
        "segmentation fault",
        "exit",
        "fatal",
        evidence,
        "in MindSpore a collective (AllReduce) before mindspore.communication.init() does this: call init() first; "
        "else run again with python -X faulthandler",
    )


def _oom_kill_count(cgroup_events: str) -> int | None:
    found = re.search(r"^\s*oom_kill\s+(\d+)\s*$", cgroup_events, re.MULTILINE)
    return int(found[1]) if found else None


def _first_line(pattern: re.Pattern[str], text: str) -> str | None:
    return next((line.strip() for line in text.splitlines() if pattern.search(line)), None)


def _last_lines(text: str, count: int) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())[-count:]


def _signal_name(number: int) -> str | None:
    return next((s.name for s in signal.Signals if s == number), None)

"""Sample files of things gone wrong: broken inputs, kernel logs, metrics of a sick run, daily health.

Written by us in the formats that readers meet: nothing here was recorded on a machine. Numbers
agree with each other where they would in reality (pages of 4 KiB, gaps in time, halved scales).

What makes ``sick_rows`` sick, by step of 300:
    1     memory grows by 1.5 MB a step, a list in the data map that is never emptied
    121   steps slow down, to 2.5 times at the end
    181   a loss spike of 2.2 nats, recovered by 200
    205   the loss diverges
    231   every step overflows, the loss scale halves down to its floor of 1
    262   the loss is NaN and stays so

Does not do: diagnosis (``workbench.diagnose``), or metrics of a real run.
"""

import json
import math
import random
from typing import Any

from workbench.data.world import World, statement

Row = dict[str, Any]
_STEPS, _WARMUP, _TOKENS_A_STEP = 300, 40, 2048  # 16 samples of 128 positions


def broken_files(world: World) -> dict[str, bytes]:
    """Inputs that a reader must set aside with a reason, beside some good lines that it must keep."""
    told = (statement(world.facts[0], "en"), statement(world.facts[1], "zh"))
    good = [json.dumps({"text": text}, ensure_ascii=False) for text in told]
    lines = [
        good[0],
        '{"text": "the quote is never closed}',
        '{"txt": "the field has another name"}',
        '{"text": 42}',
        '{"text": null}',
        '{"text": ""}',
        '["a list", "not an object"]',
        "",
        good[1],
        '{"text": "the last line is cut o',
    ]
    sentence = statement(world.facts[2], "zh")
    page = f"<html><head><title>GBK</title></head><body><p>{sentence}</p></body></html>\n"
    return {
        "lines.jsonl": "\n".join(lines).encode("utf-8"),
        "invalid_utf8.txt": f"Notes from the caf\u00e9. {statement(world.facts[3], 'en')}\n".encode("latin-1"),
        "gbk_page.html": page.encode("gbk", errors="replace"),
        "empty.txt": b"",
        "one_character.txt": "\u4e2d".encode("utf-8"),
        "binary.bin": bytes(range(256)),
        "binary_named.txt": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00",
    }


def kernel_logs() -> dict[str, str]:
    """Excerpts of kernel logs by file name; the Python process that died is named in each but ``clean.log``."""
    return {
        "oom_classic.log": _CLASSIC,
        "oom_modern.log": _MODERN,
        "oom_memcg.log": _MEMCG,
        "oom_journal.log": _JOURNAL,
        "segfault.log": _SEGFAULT,
        "clean.log": _CLEAN,
    }


def healthy_rows(seed: int) -> list[Row]:
    """300 steps of a run without faults: warm-up, decay, one overflow when the scale has grown."""
    rng = random.Random(f"{seed}/healthy")
    rows, scale = [], 65536.0
    for step in range(1, _STEPS + 1):
        overflow = int(step == 203)  # three steps after the scale doubled at 200
        loss = _curve(step) * math.exp(rng.gauss(0, 0.025))
        norm = (0.9 + 2.5 * math.exp(-step / 30)) * math.exp(rng.gauss(0, 0.15))
        seconds = 0.21 * math.exp(abs(rng.gauss(0, 0.04))) * (6.0 if step == 1 else 1.0)
        rss = 905 + 70 * (1 - math.exp(-step / 12)) + rng.gauss(0, 1.2)
        rows.append(_row(step, loss, norm, scale, overflow, seconds, rss, 148 + rng.gauss(0, 5)))
        scale = scale / 2 if overflow else scale * 2 if step % 200 == 0 else scale
    return rows


def sick_rows(seed: int) -> list[Row]:
    """300 steps in which the faults of the module's list set in one after the other."""
    rng = random.Random(f"{seed}/sick")
    rows, scale = [], 65536.0
    for step in range(1, _STEPS + 1):
        loss = _curve(step) * math.exp(rng.gauss(0, 0.025))
        norm = (0.9 + 2.5 * math.exp(-step / 30)) * math.exp(rng.gauss(0, 0.15))
        if 181 <= step < 200:
            loss += 2.2 * math.exp(-(step - 181) / 5)
            norm *= 1 + 12 * math.exp(-(step - 181) / 3)
        if step >= 205:
            loss += 0.012 * (step - 205) ** 1.6
            norm *= 1.09 ** (step - 205)
        overflow = int(step >= 231)
        if overflow:
            norm = math.inf
        if step >= 262:
            loss, norm = math.nan, math.nan
        slower = 1 + 1.5 * max(0, step - 120) / (_STEPS - 120)
        seconds = 0.21 * slower * math.exp(abs(rng.gauss(0, 0.05))) * (6.0 if step == 1 else 1.0)
        rss = 905 + 70 * (1 - math.exp(-step / 12)) + 1.5 * step + rng.gauss(0, 1.2)
        rows.append(_row(step, loss, norm, scale, overflow, seconds, rss, 148 / slower + rng.gauss(0, 5)))
        scale = max(1.0, scale / 2) if overflow else scale * 2 if step % 200 == 0 else scale
    return rows


def daily_rows(seed: int) -> list[Row]:
    """30 days of health numbers, one row a day.

    On days 10 and 11 ``step_time_variance`` is far over what is usual, then good again: two days
    are no reason for a review. On days 21, 22 and 23 ``memory_growth_rate`` is: three are.
    Units: ``loss_std`` nats, ``device_utilization`` 0 to 1, ``memory_growth_rate`` MB per 1000
    steps, ``step_time_variance`` seconds squared.
    """
    rng = random.Random(f"{seed}/daily")
    rows = []
    for day in range(1, 31):
        row = {
            "day": day,
            "loss_std": 0.055 * math.exp(rng.gauss(0, 0.08)),
            "device_utilization": 0.82 + rng.gauss(0, 0.012),
            "memory_growth_rate": 3.0 + rng.gauss(0, 0.6),
            "step_time_variance": 0.0009 * math.exp(rng.gauss(0, 0.10)),
        }
        if day in (10, 11):
            row["step_time_variance"] *= 9
        if day in (21, 22, 23):
            row["memory_growth_rate"] += 38 + 4 * (day - 21)
        rows.append({name: value if name == "day" else round(value, 6) for name, value in row.items()})
    return rows


def _curve(step: int) -> float:
    # From ln(2048), a uniform guess, towards 1.35 nats.
    return 1.35 + (math.log(2048) - 1.35) * math.exp(-step / 70)


def _learning_rate(step: int) -> float:
    if step <= _WARMUP:
        return 3e-3 * step / _WARMUP
    along = (step - _WARMUP) / (_STEPS - _WARMUP)
    return 3e-3 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * along)))


def _row(
    step: int, loss: float, norm: float, scale: float, overflow: int, seconds: float, rss: float, cpu: float
) -> Row:
    numbers = {
        "loss": loss,
        "lm_loss": loss,
        "grad_norm": math.inf if overflow and not math.isnan(norm) else norm,
        "learning_rate": _learning_rate(step),
        "loss_scale": scale,
        "step_seconds": seconds,
        "tokens_per_second": _TOKENS_A_STEP / seconds,
        "rss_mb": rss,
        "cpu_percent": cpu,
    }
    # Non-finite numbers as run folders write them: JSON has no word for them.
    plain = {k: float(f"{v:.6g}") if math.isfinite(v) else str(v) for k, v in numbers.items()}
    return {"step": step, "steps": _STEPS, **plain, "overflow": overflow, "tokens": _TOKENS_A_STEP}


_CLASSIC = """\
[1482913.201544] python invoked oom-killer: gfp_mask=0x24201ca, order=0, oom_score_adj=0
[1482913.201549] python cpuset=/ mems_allowed=0
[1482913.201556] CPU: 11 PID: 4321 Comm: python Not tainted 4.9.0-8-amd64 #1 Debian 4.9.144-3
[1482913.201790] Mem-Info:
[1482913.201795] active_anon:598112 inactive_anon:20417 isolated_anon:0
[1482913.201903] [ pid ]   uid  tgid total_vm      rss nr_ptes nr_pmds swapents oom_score_adj name
[1482913.201921] [  612]     0   612     8712      214      21       3        0         -1000 sshd
[1482913.201938] [ 4321]  1000  4321  2345678   586000    1402      12        0             0 python
[1482913.201944] [ 4377]  1000  4377   301220    11873      96       5        0             0 python
[1482913.201951] Out of memory: Kill process 4321 (python) score 912 or sacrifice child
[1482913.202608] Killed process 4321 (python) total-vm:9382712kB, anon-rss:2343104kB, file-rss:896kB, shmem-rss:0kB
"""
_MODERN = """\
[ 8213.442871] python invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0
[ 8213.442889] CPU: 3 PID: 15872 Comm: python Not tainted 5.15.0-91-generic #101-Ubuntu
[ 8213.443310] Mem-Info:
[ 8213.443320] active_anon:1204 inactive_anon:7718812 isolated_anon:0
[ 8213.444190] Tasks state (memory values in pages):
[ 8213.444191] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[ 8213.444260] [   1123]     0  1123     3857      258    73728        0         -1000 sshd
[ 8213.444311] [  15872]  1001 15872 10485213  7650112 62160896        0             0 python
[ 8213.444330] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,\
task_memcg=/user.slice/user-1001.slice/session-4.scope,task=python,pid=15872,uid=1001
[ 8213.444392] Out of memory: Killed process 15872 (python) total-vm:41940852kB, anon-rss:30598400kB, file-rss:2048kB, \
shmem-rss:0kB, UID:1001 pgtables:60704kB oom_score_adj:0
[ 8214.918004] oom_reaper: reaped process 15872 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
"""
_MEMCG = """\
[552031.118204] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=969
[552031.118231] CPU: 40 PID: 77310 Comm: python Not tainted 5.10.0-153.12.0.92.oe2203sp2.aarch64 #1
[552031.118420] memory: usage 33554432kB, limit 33554432kB, failcnt 20917
[552031.118423] memory+swap: usage 33554432kB, limit 9007199254740988kB, failcnt 0
[552031.118426] Memory cgroup stats for /kubepods/burstable/pod3f0c9d52/7be1c2a94d10:
[552031.118512] Tasks state (memory values in pages):
[552031.118514] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[552031.118530] [  77102]     0 77102      242        1    28672        0          -998 pause
[552031.118541] [  77310]     0 77310 12058624  8192000 68157440        0           969 python
[552031.118557] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=7be1c2a94d10,mems_allowed=0-3,\
oom_memcg=/kubepods/burstable/pod3f0c9d52,task_memcg=/kubepods/burstable/pod3f0c9d52/7be1c2a94d10,\
task=python,pid=77310,uid=0
[552031.118640] Memory cgroup out of memory: Killed process 77310 (python) total-vm:48234496kB, anon-rss:32751616kB, \
file-rss:16384kB, shmem-rss:0kB, UID:0 pgtables:66560kB oom_score_adj:969
[552032.004417] oom_reaper: reaped process 77310 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
"""
_JOURNAL = """\
Nov 28 03:14:05 trainer-03 systemd[1]: Started Session 211 of user research.
Nov 28 03:14:07 trainer-03 kernel: python3 invoked oom-killer: \
gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0, oom_score_adj=0
Nov 28 03:14:07 trainer-03 kernel: oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,\
global_oom,task_memcg=/system.slice/train.service,task=python3,pid=20231,uid=1002
Nov 28 03:14:07 trainer-03 kernel: Out of memory: Killed process 20231 (python3) total-vm:71303168kB, \
anon-rss:62914560kB, file-rss:4096kB, shmem-rss:131072kB, UID:1002 pgtables:124928kB oom_score_adj:0
Nov 28 03:14:08 trainer-03 systemd[1]: train.service: A process of this unit has been killed by the OOM killer.
Nov 28 03:14:08 trainer-03 systemd[1]: train.service: Main process exited, code=killed, status=9/KILL
Nov 28 03:14:08 trainer-03 systemd[1]: train.service: Failed with result 'oom-kill'.
"""
_SEGFAULT = """\
[66120.551209] eth0: renamed from veth1a2b3c4
[70418.903317] python[5150]: segfault at 0 ip 00007f3c2a91b4d7 sp 00007ffd6c0e5b20 error 4 in \
libmindspore_backend.so[7f3c29c00000+1f4a000]
[70418.903341] Code: 48 8b 07 48 89 fb ff 50 18 48 8b 03 48 89 df ff 50 20 84 c0 74 \
0c <48> 8b 45 00 48 89 ef 5b 5d ff 60 28
"""
_CLEAN = """\
[    0.000000] Linux version 5.15.0-91-generic (buildd@lcy02) (gcc 11.4.0) #101-Ubuntu SMP
[    1.204417] EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Opts: (null)
[    4.887120] igb 0000:3b:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX
[   12.330918] audit: type=1400 audit(1764295200.118:31): apparmor="STATUS" operation="profile_load" name="python"
[ 3651.772054] perf: interrupt took too long (2513 > 2500), lowering kernel.perf_event_max_sample_rate to 79500
"""

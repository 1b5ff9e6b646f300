"""The kernel log in the forms that Linux prints, and random text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.diagnose.kernel_log import parse_crashes, parse_kernel_log, userspace_kills

CLASSIC = """\
[123456.700] python invoked oom-killer: gfp_mask=0x14280ca, order=0, oom_score_adj=0
[123456.789] Out of memory: Kill process 12345 (python) score 892 or sacrifice child
[123456.790] Killed process 12345 (python) total-vm:12345678kB, anon-rss:2345678kB, file-rss:0kB
"""
MODERN = (
    "[  99.5] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/user.slice,task=python3,pid=811,uid=1000\n"
    "[  99.6] Out of memory: Killed process 811 (python3) total-vm:9000kB, anon-rss:8000kB, file-rss:12kB, "
    "shmem-rss:4kB, UID:1000 pgtables:15kB oom_score_adj:0\n"
)
MEMCG = (
    "Dec  9 21:47:11 node7 kernel: [3217.6] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=8580,"
    "mems_allowed=0,oom_memcg=/docker/8580,task_memcg=/docker/8580,task=python,pid=11433,uid=0\n"
    "Dec  9 21:47:11 node7 kernel: [3217.7] Memory cgroup out of memory: Killed process 11433 (python) "
    "total-vm:25004420kB, anon-rss:91796kB, file-rss:15612kB, shmem-rss:0kB, UID:0 pgtables:716kB oom_score_adj:0\n"
)
OLD_MEMCG = """\
[1.0] Task in /slurm/job_7 killed as a result of limit of /slurm/job_7
[1.1] Memory cgroup out of memory: Kill process 46211 (python) score 561 or sacrifice child
[1.2] Killed process 46433 (python) total-vm:536552kB, anon-rss:12012kB, file-rss:53740kB, shmem-rss:4kB
"""
UID_FORM = "2026-11-29T10:00:00+0800 h kernel: Killed process 26 (mysqld), UID 27, total-vm:70kB, anon-rss:50kB"


def test_the_classic_two_lines_are_one_kill():
    (kill,) = parse_kernel_log(CLASSIC)
    assert (kill.pid, kill.name, kill.scope, kill.score) == (12345, "python", "global", 892)
    assert (kill.total_vm_kb, kill.anon_rss_kb, kill.file_rss_kb, kill.shmem_rss_kb) == (12345678, 2345678, 0, None)
    assert kill.rss_kb == 2345678


def test_the_announcing_line_alone_counts_though_the_usual_grep_misses_it():
    line = CLASSIC.splitlines()[1]
    assert "killed process" not in line.lower()
    (kill,) = parse_kernel_log(line)
    assert (kill.pid, kill.score, kill.rss_kb) == (12345, 892, None)


def test_the_modern_line_with_its_constraint():
    (kill,) = parse_kernel_log(MODERN)
    assert (kill.pid, kill.scope, kill.constraint, kill.cgroup) == (811, "global", "CONSTRAINT_NONE", None)
    assert kill.rss_kb == 8016


def test_a_container_limit_behind_a_syslog_prefix():
    (kill,) = parse_kernel_log(MEMCG)
    assert (kill.pid, kill.scope, kill.constraint, kill.cgroup) == (11433, "cgroup", "CONSTRAINT_MEMCG", "/docker/8580")


def test_an_old_kernel_that_kills_the_child_of_the_announced_process():
    (kill,) = parse_kernel_log(OLD_MEMCG)
    assert (kill.pid, kill.scope, kill.cgroup, kill.score) == (46433, "cgroup", "/slurm/job_7", None)
    assert kill.rss_kb == 12012 + 53740 + 4


def test_the_form_with_the_uid_between_and_a_journal_prefix():
    (kill,) = parse_kernel_log(UID_FORM)
    assert (kill.pid, kill.name, kill.total_vm_kb, kill.anon_rss_kb) == (26, "mysqld", 70, 50)


def test_all_forms_after_each_other_stay_apart():
    kills = parse_kernel_log(CLASSIC + MODERN + "garbage \x00 line\n" + MEMCG + OLD_MEMCG + UID_FORM)
    assert [k.pid for k in kills] == [12345, 811, 11433, 46433, 26]
    assert [k.scope for k in kills[:4]] == ["global", "global", "cgroup", "cgroup"]


def test_a_whole_cgroup_killed_keeps_the_cgroup_and_a_later_global_kill_does_not():
    second = MEMCG.splitlines()[1].replace("11433", "11434")
    late = "[9.9] Out of memory: Killed process 5 (java) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
    kills = parse_kernel_log(MEMCG + second + "\n" + late)
    assert [(k.pid, k.cgroup, k.scope) for k in kills] == [
        (11433, "/docker/8580", "cgroup"), (11434, "/docker/8580", "cgroup"), (5, None, "global"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["Web Content", "python) (x", "训练进程", "a:b"])
def test_names_with_blanks_brackets_and_chinese(name):
    (kill,) = parse_kernel_log(f"Out of memory: Killed process 7 ({name}) total-vm:3kB, anon-rss:2kB, file-rss:1kB")
    assert (kill.pid, kill.name, kill.anon_rss_kb) == (7, name, 2)


def test_lines_that_only_look_like_it():
    assert (
        parse_kernel_log("oom_reaper: reaped process 46433 (chrome), now anon-rss:0kB\nI killed process pool\n") == []
    )


def test_crashes_and_memory_daemons():
    log = (
        "[5.1] python[4242]: segfault at 0 ip 00007f sp 00007f error 4 in libmindspore_core.so[7f00+1000]\n"
        "[5.2] traps: python[99] general protection fault ip:7f sp:7f error:0\n"
        "[5.3] usb 1-1: new device\n"
        "Nov 29 10:00:00 n systemd-oomd[512]: Killed /user.slice/job.scope due to memory pressure\n"
    )
    assert [(c.pid, c.name) for c in parse_crashes(log)] == [(4242, "python"), (99, "python")]
    assert len(userspace_kills(log)) == 1


PIECES = st.sampled_from(
    [*(CLASSIC + MODERN + MEMCG + OLD_MEMCG).splitlines(), "oom-kill:constraint=", "Killed process 1 (", ""]
)
CUT = st.builds(lambda line, a, b: line[a:b], PIECES, st.integers(0, 40), st.integers(0, 250))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.text(max_size=80), PIECES, CUT), max_size=12).map("\n".join))
def test_no_text_raises_and_every_kill_comes_from_a_line_of_it(text):
    stripped = [line.strip() for line in text.splitlines()]
    for kill in parse_kernel_log(text):
        assert kill.line in stripped and str(kill.pid).lstrip("0") in kill.line and kill.scope in ("global", "cgroup")
    for crash in parse_crashes(text):
        assert crash.line in stripped

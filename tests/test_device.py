"""device.py: names, a machine without Ascend, quiet start, ranks."""

import subprocess
import sys

import pytest

from workbench import device
from workbench.device import DEVICES, check_joined, join_ranks, joined_ranks, leave_ranks, ranks, use_device
from workbench.errors import SettingError


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


def test_cpu_is_used_in_pynative_mode():
    import mindspore as ms

    device = use_device("CPU")
    assert device is DEVICES["CPU"] and not device.is_ascend and not device.flash_attention
    assert ms.get_context("device_target") == "CPU" and ms.get_context("mode") == ms.PYNATIVE_MODE
    assert use_device("CPU") is device


def test_matmul_dtypes_are_those_the_device_computes_in():
    import mindspore as ms

    use_device("CPU")
    for name in ("float32", "float16", "bfloat16"):
        ones = ms.Tensor([[1.0, 2.0]], getattr(ms, name))
        if name in DEVICES["CPU"].matmul_dtypes:
            assert ms.ops.matmul(ones, ones.T).astype(ms.float32).asnumpy() == 5
        else:
            with pytest.raises((RuntimeError, TypeError), match="MatMul"):
                ms.ops.matmul(ones, ones.T).astype(ms.float32).asnumpy()


@pytest.mark.parametrize("name, near", [("ascend", "'Ascend'"), ("cpu", "known: Ascend, CPU"), ("GPU", "'CPU'")])
def test_an_unknown_device_is_refused(name, near):
    with pytest.raises(SettingError) as error:
        use_device(name)
    assert near in str(error.value) and "\n" not in str(error.value)


def test_ascend_where_there_is_none_is_one_line():
    import mindspore as ms

    if ms.device_context.ascend.is_available():
        pytest.skip("this machine has Ascend")
    with pytest.raises(SettingError) as error:
        use_device("Ascend")
    assert "not available" in str(error.value) and "device='CPU'" in str(error.value)
    assert "\n" not in str(error.value)


def test_start_prints_nothing_and_leaves_stdout_alone():
    """MindSpore's banners do not reach stdout, what is printed before and after does."""
    done = run(
        "print('before'); from workbench.device import use_device; use_device('CPU')\n"
        "import mindspore as ms; print((ms.Tensor([1.0]) + 1).asnumpy())"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["before", "[2.]", ""]


def test_importing_the_room_does_not_import_mindspore():
    done = run("import sys, workbench.device; print('mindspore' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_ranks_are_those_of_msrun(monkeypatch):
    for name in ("MS_ROLE", "RANK_ID", "MS_WORKER_NUM"):
        monkeypatch.delenv(name, raising=False)
    assert ranks() == (0, 1)
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    monkeypatch.setenv("RANK_ID", "3")
    monkeypatch.setenv("MS_WORKER_NUM", "4")
    assert ranks() == (3, 4)


def test_without_msrun_there_is_nothing_to_join_or_to_leave(monkeypatch):
    monkeypatch.delenv("MS_ROLE", raising=False)
    assert join_ranks() == (0, 1)
    check_joined()
    leave_ranks()


def test_a_process_that_is_a_rank_from_start_to_end_stays_joined(monkeypatch):
    def never():
        raise AssertionError("joined or left inside")

    monkeypatch.setattr(device, "_joined", lambda: True)
    monkeypatch.setattr(device, "join_ranks", never)
    monkeypatch.setattr(device, "leave_ranks", never)
    for name, value in (("MS_ROLE", "MS_WORKER"), ("RANK_ID", "1"), ("MS_WORKER_NUM", "2")):
        monkeypatch.setenv(name, value)
    with joined_ranks() as here:
        assert here == (1, 2)


def test_the_way_to_leave_exists_in_this_mindspore():
    from workbench.device import _finalize_cluster

    assert callable(_finalize_cluster())

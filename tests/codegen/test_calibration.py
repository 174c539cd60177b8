"""The calibration of a machine: its kernels, its record, and the target option that carries it."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import tir
from codegen import calibration, machine_record
from codegen.calibration import Calibration, CalibrationError, calibrate
from schedule.machine import CPU, Memory, memory_of

MEMORY = Memory((2.0, 8.0, 22.6), (2.0, 22.6, 45.3), 16 << 20)


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """An empty cache folder, whose records targets have as outside of tests."""
    monkeypatch.setattr(machine_record, "default_path", lambda: tmp_path / "objects")
    monkeypatch.setattr(machine_record, "recorded", machine_record.from_file)
    machine_record.from_file.cache_clear()
    request.addfinalizer(machine_record.from_file.cache_clear)
    return tmp_path


@pytest.fixture
def cycles(monkeypatch):
    """The cycles of a line that each kind and level takes: what is measured then."""
    found = {("line", n): c for n, c in enumerate((2.1, 8.3, 23.0))} | {("row", n): c for n, c in enumerate((1.9, 22.0, 47.0))}
    monkeypatch.setattr(calibration, "peak_flops", lambda target: 2 * target.lanes(32) * target.machine.fmas * 1e9)
    monkeypatch.setattr(calibration, "host_caches", lambda: (48 << 10, 2 << 20, 105 << 20))

    def walks(target, nbytes):
        found.update({("line", n): 8.3 if nbytes[n] <= 16 << 20 else 23.0 for n in range(3, len(nbytes))})
        return {key: (lambda key=key: key, 1.0) for key in found}

    monkeypatch.setattr(calibration, "_walks", walks)
    monkeypatch.setattr(calibration, "_seconds", lambda call: 1e-9 * found[call()])
    return found


def test_memory_is_written_and_read():
    assert str(MEMORY) == "2,8,22.6/2,22.6,45.3+16" and Memory.parse(str(MEMORY)) == MEMORY
    nominal = replace(MEMORY, l3=0)
    assert str(nominal) == "2,8,22.6/2,22.6,45.3" and Memory.parse(str(nominal)) == nominal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2,8,22",
        "2,8/2,8",
        "2,8,0/2,8,9",
        "2,8,-1/2,8,9",
        "2,8,inf/2,8,9",
        "a,b,c/1,2,3",
        "1,2,3/4,5,6+x",
        "1,2,3/4,5,6+-1",
        7,
    ],
)
def test_other_memory_is_refused(text):
    if text == "":
        assert tir.Target("llvm", memory=text).memory == ""
        return
    with pytest.raises(ValueError) as error:
        tir.Target("llvm", memory=text)
    assert str(error.value) == (
        "target option memory takes cycles of a line from L2, L3 and memory, in order and in rows, and MiB of L3, as "
        f"2,8,23/2,23,64+16; got {text!r}"
    )


def test_a_target_carries_its_memory():
    target = tir.Target("llvm -num-cores 1", memory=str(MEMORY))
    assert tir.Target(str(target)) == target and str(target).endswith(f" -memory {MEMORY}")
    machine = target.machine_as(CPU)
    assert machine.memory == MEMORY and machine.l3_bytes == machine.l3_reuse_bytes == 16 << 20
    plain = tir.Target("llvm -num-cores 1")
    assert plain.machine_as(CPU).memory == memory_of(plain.mcpu)
    with pytest.raises(ValueError, match="target option memory is for llvm"):
        tir.Target("cuda", memory=str(MEMORY))


def test_records_of_timings_do_not_depend_on_it():
    from search.measure.provenance import fingerprint

    assert fingerprint(tir.Target("llvm", memory=str(MEMORY))) == fingerprint("llvm")


def test_the_kernel_reads_each_element_once():
    target = tir.Target("llvm -num-cores 1")
    A = np.random.default_rng(0).integers(-9, 9, (13, calibration.PANELS * calibration.PANEL_BYTES // 4)).astype("float32")
    sums = np.full(A.shape[1], np.nan, "float32")
    calibration._walk(A.shape[1], target)(13, A, sums)
    assert (sums == A.sum(0)).all()
    for (kind, level), (call, lines) in calibration._walks(target, (1 << 14, 1 << 15, 1 << 16)).items():
        call()
        assert 0.75 * (1 << 14 + level) <= 64 * lines <= 1 << 14 + level, kind


def test_what_is_measured_is_kept_for_later_targets(folder, cycles):
    assert tir.Target("llvm").memory == ""
    found = calibrate(keep=False)
    assert found.memory == MEMORY and found.cycle_ns == pytest.approx(1.0) and not list(folder.iterdir())
    calibrate()
    assert tir.Target("llvm").memory == str(MEMORY)
    assert tir.Target("llvm", mcpu="x86-64-v2").memory == ""  # perhaps for another machine
    record = json.loads(machine_record.path().read_text())
    assert record["memory"] == str(MEMORY) and len(record["nbytes"]) == 3


def test_noise_does_not_change_what_is_kept(cycles):
    rng = np.random.default_rng(0)
    usual = calibrate(keep=False).memory
    for key, value in dict(cycles).items():
        cycles[key] = value * rng.uniform(0.93, 1.07)
    assert calibrate(keep=False).memory == usual


def test_a_busy_machine_is_refused(cycles, monkeypatch):
    calibrate(keep=False)  # which tells the cycles of all sizes
    rounds = iter([factor for factor in (1.0, 3.0, 1.0, 3.0, 1.0) for _ in cycles])
    monkeypatch.setattr(calibration, "_seconds", lambda call: 1e-9 * next(rounds) * cycles[call()])
    with pytest.raises(CalibrationError) as error:
        calibrate(keep=False)
    assert str(error.value) == (
        f"the machine is too busy to calibrate: line of {1 << 19} bytes took 2.1 to 6.3 cycles a line; try again when fewer programs run"
    )


@pytest.mark.parametrize("target", ["cuda -arch sm_90", "llvm -mcpu x86-64-v2"])
def test_other_machines_are_refused(target):
    with pytest.raises(CalibrationError) as error:
        calibrate(target)
    assert str(error.value) == f"calibrate measures this processor, not {tir.Target(target, num_cores=1)}"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"other": 1}'])
def test_a_damaged_record_is_as_none(folder, text):
    machine_record.path().parent.mkdir()
    machine_record.path().write_text(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert tir.Target("llvm").memory == ""
    assert "python -m tir.calibrate makes it anew" in str(caught[0].message)


def test_the_command_line_prints_a_table(monkeypatch, capsys):
    from cli import calibrate as command

    found = Calibration(MEMORY, (1 << 19, 13 << 20, 1 << 28), 0.5)
    monkeypatch.setattr(command, "calibrate", lambda keep: found)
    assert command.main(["--dry-run"]) == 0
    text = command.table(found, replace(MEMORY, row=(2.0, 6.0, 18.0)), "znver5")
    assert text == (
        "level      read  lines in order             as znver5  lines in rows             as znver5\n"
        "L2      0.5 MiB        2 cycles    64 GB/s          2       2 cycles    64 GB/s          2\n"
        "L3       13 MiB        8 cycles    16 GB/s          8    22.6 cycles  5.66 GB/s          6\n"
        "memory  256 MiB     22.6 cycles  5.66 GB/s       22.6    45.3 cycles  2.83 GB/s         18"
    )
    assert f"Target option: -memory {MEMORY}" in capsys.readouterr().out


def test_the_command_line_says_why_it_failed(monkeypatch, capsys):
    from cli import calibrate as command

    def busy(keep):
        raise CalibrationError("the machine is too busy")

    monkeypatch.setattr(command, "calibrate", busy)
    assert command.main([]) == 1 and capsys.readouterr().err == "error: the machine is too busy\n"

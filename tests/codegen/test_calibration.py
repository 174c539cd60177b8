"""The calibration of a machine: its kernels, its record, and the target option that carries it."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

import tir
from codegen import calibration, machine_record
from codegen.calibration import Calibration, CalibrationError, calibrate
from schedule.machine import CPU, Memory, memory_of

MEMORY = Memory((2.0, 8.0, 22.6), (2.0, 22.6, 45.3), 16 << 20, fork=5790, wake=371000)


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
    found |= {("streams", n): c for n, c in ((8, 20.0), (4, 19.8), (2, 24.0))}  # four gain less than noise
    monkeypatch.setattr(calibration, "peak_flops", lambda target: 2 * target.lanes(32) * target.machine.fmas * 1e9)
    monkeypatch.setattr(calibration, "host_caches", lambda: (48 << 10, 2 << 20, 105 << 20))

    def walks(target, nbytes):
        found.update({("line", n): found["line", 1 + (nbytes[n] > 16 << 20)] for n in range(3, len(nbytes))})
        return {key: (lambda key=key: key, 1.0) for key in found}

    monkeypatch.setattr(calibration, "_walks", walks)
    monkeypatch.setattr(calibration, "host_cores", lambda: 2)
    monkeypatch.setattr(calibration, "_forks", lambda: (5.2e-6, 4.2e-4))
    monkeypatch.setattr(calibration, "_seconds", lambda call: 1e-9 * found[call()])
    return found


def test_memory_is_written_and_read():
    assert str(MEMORY) == "2,8,22.6/2,22.6,45.3+16x8~5790,371000" and Memory.parse(str(MEMORY)) == MEMORY
    nominal = Memory(MEMORY.line, MEMORY.row, 0, 2)
    assert str(nominal) == "2,8,22.6/2,22.6,45.3+0x2" and Memory.parse(str(nominal)) == nominal
    assert Memory.parse("2,8,22.6/2,22.6,45.3") == replace(nominal, streams=8)


@pytest.mark.parametrize("text", [
    "", "2,8,22", "2,8/2,8", "2,8,0/2,8,9", "2,8,-1/2,8,9", "2,8,inf/2,8,9", "a,b,c/1,2,3", "1,2,3/4,5,6+x", "1,2,3/4,5,6+-1",
    "1,2,3/4,5,6+1x0", "1,2,3/4,5,6x2.5",
    "1,2,3/4,5,6+1x2~5", "1,2,3/4,5,6+1x2~0,9", "1,2,3/4,5,6+1x2~a,9", 7,
])  # fmt: skip
def test_other_memory_is_refused(text):
    if text == "":
        assert tir.Target("llvm", memory=text).memory == ""
        return
    with pytest.raises(ValueError) as error:
        tir.Target("llvm", memory=text)
    assert str(error.value) == (
        "target option memory takes cycles of a line from L2, L3 and memory, in order and in rows, MiB of L3, "
        f"streams, and a parallel loop awake and asleep, as 2,8,23/2,23,64+16x8~5200,435000; got {text!r}"
    )


def test_a_target_carries_its_memory():
    target = tir.Target("llvm -num-cores 1", memory=str(MEMORY))
    assert tir.Target(str(target)) == target and str(target).endswith(f" -memory {MEMORY}")
    assert tir.Target(str(target).replace("+16", "+016")) == target  # one spelling
    machine = target.machine_as(CPU)
    assert machine.memory == MEMORY and machine.l3_bytes == machine.l3_reuse_bytes == 16 << 20
    plain = tir.Target("llvm -num-cores 1")
    assert plain.machine_as(CPU).memory == memory_of(plain.mcpu)
    with pytest.raises(ValueError, match="target option memory must be an integer"):
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
        read = 1 << (16 if kind == "streams" else 14 + level)
        assert 0.75 * read <= 64 * lines <= read, (kind, level)


@pytest.mark.parametrize("streams", calibration.STREAMS)
def test_each_stream_is_read_once(streams):
    target = tir.Target("llvm -num-cores 1")
    parts = np.random.default_rng(0).integers(-9, 9, (streams, 7, 32)).astype("float32")
    sums = np.full((streams, 32), np.nan, "float32")
    calibration._reading(streams, 32, target)(7, parts, sums)
    assert (sums == parts.sum(1)).all()


def test_parallel_loops_that_do_nothing_write_a_line_of_each_thread():
    """Fewer seconds for threads that are awake, by the least of the rounds."""
    calibration._regions(2, 3)()
    awake, asleep = calibration._forks()
    assert 0 < awake <= asleep


def test_as_many_rows_are_read_at_once_as_are_fastest(cycles):
    assert calibrate(keep=False).memory.streams == 8
    cycles["streams", 2] = 15.0
    assert calibrate(keep=False).memory.streams == 2


def test_what_is_measured_is_kept_for_later_targets(folder, cycles):
    assert tir.Target("llvm").memory == ""
    found = calibrate(keep=False)
    assert found.memory == MEMORY and found.cycle_ns == pytest.approx(1.0) and not list(folder.iterdir())
    calibrate()
    assert tir.Target("llvm").memory == str(MEMORY)
    for other in ({"mcpu": "x86-64-v2"}, {"l3": 1 << 20}, {"vector_bits": 128}, {"mattr": "+sse2"}):  # perhaps another machine
        target = tir.Target("llvm", **other)
        assert target.memory == "" and tir.Target(str(target)) == target
    plain = tir.Target("llvm", memory="described")
    assert plain.memory == "" and str(plain).endswith(" -memory described") and tir.Target(str(plain)) == plain
    assert tir.Target(str(tir.Target("llvm"))).memory == str(MEMORY) and str(MEMORY) in str(tir.Target("llvm"))
    record = json.loads(machine_record.path().read_text())
    assert record["memory"] == str(MEMORY) and len(record["nbytes"]) == 3


def test_what_is_kept_has_few_values():
    """Two to a power of two, no farther from what was measured than a quarter of that."""
    for cycles in np.random.default_rng(0).uniform(1, 100, 200):
        assert 2**-0.26 <= calibration._quantised(cycles) / cycles <= 2**0.26
    assert len({calibration._quantised(c) for c in np.linspace(1, 100, 1000)}) <= 15


def test_an_l3_that_is_no_quicker_than_memory_holds_little(cycles):
    for key in list(cycles):
        cycles[key] = 2.0 if key[1] == 0 else 23.0
    assert calibrate(keep=False).memory.l3 == 4 << 20  # twice L2


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


@pytest.mark.parametrize("text", ["", "{", "[]", '{"other": 1}', '{"memory": "2;8/v2"}', '{"memory": 7}'])
def test_a_damaged_record_is_as_none(folder, text):
    machine_record.path().parent.mkdir()
    machine_record.path().write_text(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert tir.Target("llvm").memory == ""
    assert "python -m tir.calibrate measures again" in str(caught[0].message)


def test_without_a_home_nothing_was_measured(folder, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(machine_record, "default_path", homeless)
    machine_record.from_file.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tir.Target("llvm").memory == ""


def test_what_cannot_be_kept_is_printed(cycles, monkeypatch, capsys):
    from cli import calibrate as command

    def refuse(found):
        raise PermissionError("denied")

    monkeypatch.setattr(command, "keep_calibration", refuse)
    assert command.main([]) == 1
    printed = capsys.readouterr()
    assert f"Target option: -memory {MEMORY}" in printed.out
    assert printed.err == "error: the calibration cannot be kept: denied; give targets the option above instead\n"


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
    printed = capsys.readouterr().out
    assert f"Target option: -memory {MEMORY}" in printed and printed.startswith("processor ")


def test_the_command_line_shows_the_machine(monkeypatch):
    from cli import calibrate as command

    monkeypatch.setattr(command, "peak_flops", lambda target, threads: threads * 1e11)
    monkeypatch.setattr(command, "copy_bandwidth", lambda target: 4e10)
    text = command.machine(tir.Target("llvm -num-cores 2 -mcpu x86-64-v4 -l1 32768 -l2 1048576 -l3 33554432"))
    assert re.fullmatch(
        r"processor  .+ \(x86-64-v4\), 2 cores\nvectors    512 bits, 32 registers\n"
        r"caches     L1 32 KiB, L2 1,024 KiB, L3 32,768 KiB\n"
        r"peak       100 GFLOP/s on 1 thread, 200 GFLOP/s on 2 threads, in float32\n"
        r"memory     40 GB/s, read and written in copies\n",
        text,
    )


def test_the_command_line_says_why_it_failed(monkeypatch, capsys):
    from cli import calibrate as command

    def busy(keep):
        raise CalibrationError("the machine is too busy")

    monkeypatch.setattr(command, "calibrate", busy)
    assert command.main([]) == 1 and capsys.readouterr().err == "error: the machine is too busy\n"

"""Compilation of a graph to a model: passes, groups, schedules, kernels, places in memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import numpy as np

from codegen import Kernel, ObjectCache, Target, backend
from codegen.cache import users_cache
from schedule.templates.low_precision import adds_pairs
from search.compilation import at_sizes, compile_function
from search.planning import Plan, measure, recorded
from search.sizes import named_rows
from tir.constants import with_shared_constants
from tir.ir import PrimFunc, Var
from tir.te import Tensor, create_prim_func

from .alternatives import part
from .donation import donations, fuse_in_place, growing, planned_graph
from .export import save_open
from .fusion import Group
from .general import GeneralKernels, Row, is_constant, largest_samples, samples
from .ir import Graph, GraphError
from .kernels import GroupKernel, compiled
from .loops import loops_of, ordered
from .memory import WEIGHTS
from .memory import plan as planned_memory
from .model import Model
from .network import Network
from .ops.loops import MIN_LOOPED_STEPS
from .passes import PASSES, Pass, optimize
from .passes.channels import convolve_channels_last
from .passes.dequantised import transpose_dequantised
from .passes.integers import in_fewer_cycles
from .passes.loops import write_out_loops
from .passes.precision import Precision, in_precision
from .passes.quantised import stay_quantised
from .passes.weights import dot_lanes, keep_weights_narrow, vector_registers
from .passes.winograd import fastest, filter_minimally
from .planned import NotPlanned, OpenPlan, Program, Sample, Survey, is_planned
from .prepare import Constants, filled, prepared
from .saved import restored
from .sizes import OpenGraph
from .tables import ROOM
from .variants import OpenModel

if TYPE_CHECKING:
    from codegen.cuda import CudaKernel
    from search import Records
    from search.sizes import Sizes

MAX_PLANNED_STEPS = 32  # steps of all loops of a network with plans: to read 20 steps at all samples took 33 s on a Zen 4
MAX_RANDOM_SAMPLES = 12  # random combinations of sizes after those of `samples`, for each choice of the sizes that are 1

Cache = ObjectCache | Literal["user"] | None
Computation = PrimFunc | Sequence[Tensor | Var]  # a function, or the parameters of one as `te` has them, outputs last


class Options(TypedDict, total=False):
    """The options of `compile` for functions and networks."""

    records: str | Path | Records | None
    cache: Cache
    plan: Plan


class NetworkOptions(Options, total=False):
    """The options of `compile` for networks."""

    winograd: bool
    precision: Precision | None
    donate: Mapping[str, str] | None


@overload
def compile(computation: Graph, target: str | Target | None = None, **options: Unpack[NetworkOptions]) -> Model: ...
@overload
def compile(
    computation: OpenGraph, target: str | Target | None = None, *, sizes: Sizes | None = None, **options: Unpack[NetworkOptions]
) -> OpenModel: ...
@overload
def compile(
    computation: Computation, target: str | Target | None = None, *, sizes: Sizes | None = None, **options: Unpack[Options]
) -> Kernel | CudaKernel: ...


def compile(
    computation, target=None, *, records=None, cache="user", plan="estimate", winograd=True, precision=None, sizes=None,
    donate=None,
):  # fmt: skip
    """A network as one native function for a processor, or for a GPU as a `graph.device.DeviceModel`. An unscheduled function as
    a kernel for any `target` (default: this processor); it may be given as the tensors that `te.create_prim_func` takes.

    Each kernel has the fastest schedule that `records` (see `tir.autotune`) hold for it, else `tir.default_schedule`. The warning
    NearHit says that they are for another target or processor. With the `plan` "measure", a kernel without a record is measured
    with alternatives of its default schedule, for some seconds, once: `records` keep what was found, or where they are None, a
    file beside the user's cache. `cache` keeps compiled kernels: that of the user, another one, or None for none.

    Without `winograd`, all convolutions of floats are computed directly (see `passes.winograd`). With a `precision`,
    "bfloat16" or "float16", its activations and weights of float32 are of 16 bits; on a GPU "tf32" rounds factors of
    products (see `passes.precision`). A function of open sizes (`te.var`) becomes a kernel for all of them; `sizes`, such as
    `{"n": (1, 128)}`, are those to be fast at. A network of open sizes becomes a model for all of them, compiled here for
    `sizes`, with kernels of open sizes for others (`general`).

    `donate` names outputs of a network by the inputs whose memory they take, as {"past": "present"}. A call then changes that
    input, in the elements that differ alone (see `donation`). An input of open length to which the output appends rows is then
    a view of the first rows of a longer array (see `growth`).

    Raises TypeError for any other computation, GraphError for a malformed graph or an impossible donation, RecordsError for an
    unusable file. Raises ValueError for `sizes` that the function does not have, for another precision or plan, or for a plan
    that cannot be measured here, and the errors of `tir.build`.
    """
    target = Target("llvm" if target is None else target)
    objects = users_cache() if cache == "user" else cache
    if isinstance(computation, list | tuple) and any(isinstance(t, Tensor) for t in computation):
        computation = create_prim_func(computation)
    with recorded(records, plan) as known:
        match computation:
            case PrimFunc() if precision is not None:
                raise ValueError("precision is for networks; a function has the types that its tensors have")
            case PrimFunc():
                if plan == "measure" and known is not None:
                    measure(at_sizes(computation, sizes), target, known)
                return compile_function(computation, target, known, objects, sizes)
            case OpenGraph() if backend(target).device is not None:
                raise ValueError(f"networks of open sizes are compiled for processors, target llvm, got {target.kind}")
            case Graph() if sizes is not None:
                raise ValueError(f"sizes was given, but no size of {computation.name} is open")
            case Graph():
                networks = import_module(backend(target).networks)
                forms = known.forms(target) if known is not None else {}
                whole = networks.final(computation, target, winograd, precision, forms)
                return networks.assembled(whole, target, known, objects, plan, donate=donate)
            case OpenGraph():
                rows = named_rows(computation.sizes, sizes, computation.name) if sizes is not None else []
                taken = samples(computation.sizes, rows) if rows else []
                computation = growing(computation, donate or {}, taken)
                general = GeneralKernels(computation.sizes, target, known, objects) if rows else None
                variants = _Variants(target, records, objects, plan, winograd, donate, precision, general)
                if general is not None:
                    for row in taken:
                        variants.learn(computation, row)
                    variants.complete(computation, largest_samples(computation.named, rows))
                    variants.survey(computation, largest_samples(computation.named, rows))
                    variants.plan(computation.sizes)
                return OpenModel(computation, variants, [] if ROOM in computation.sizes else rows)
    kind = type(computation).__name__
    raise TypeError(f"compile takes a Graph, such as tir.load_onnx gives, a PrimFunc or a list of tensors, got {kind}")


@dataclass
class _Variants:
    """The compilation of a network at several sizes. `general` has kernels for those that were not named."""

    target: Target
    records: str | Path | Records | None
    cache: ObjectCache | None
    measured: Plan
    winograd: bool
    donate: Mapping[str, str] | None
    precision: Precision | None
    general: GeneralKernels | None
    constants: Constants = field(default_factory=Constants)
    surveys: list[Survey] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    samples: dict[tuple[frozenset[str], Hashable], list[Sample]] = field(default_factory=dict)

    def learn(self, graph: OpenGraph, row: Row) -> None:
        """Read the network at a sample of its sizes, unless it refuses them."""
        row = graph.sampled(row, len(self.surveys))
        read = self._read(graph, row)
        with suppress(GraphError):
            if read is not None and plannable(read):
                sample = self._sample(read, row, graph.free)
                own = self.samples.setdefault((sample.ones, sample.structure), [])
                own.append(sample.sharing(own[0]) if own else sample)

    def _read(self, graph: OpenGraph, row: Row) -> Graph | None:
        """The network at these sizes, None where it refuses them; a survey of it is kept."""
        found = None
        with suppress(GraphError):
            found = graph.at(row)
        self.surveys.append(Survey.of(row, found))
        return found

    def survey(self, graph: OpenGraph, largest: Row) -> None:
        """Read the network for plans to learn which sizes they cover: at the smallest and the largest sizes, and between samples,
        at even and odd thirds of the largest."""
        for ones in sorted({ones for ones, _ in self.samples}, key=sorted):
            for read in (
                {n: (0, 1, most) if n in graph.free else (2, most) for n, most in largest.items()},
                {n: (most // 3, most // 3 + 1) for n, most in largest.items()},
            ):
                for row in product(*([1] if name in ones else values for name, values in read.items())):
                    self._read(graph, graph.sampled(dict(zip(largest, row, strict=True)), len(self.surveys)))

    def complete(self, graph: OpenGraph, largest: Row) -> None:
        """Read the network at random sizes until samples have a plan: where sizes divide those of weights, groups may differ."""
        rng = np.random.default_rng(0)
        for ones in sorted({ones for ones, _ in self.samples}, key=sorted):
            for _ in range(MAX_RANDOM_SAMPLES):
                if any(is_planned(graph.sizes, taken) for (own, _), taken in self.samples.items() if own == ones):
                    break
                self.learn(graph, {n: 1 if n in ones else int(rng.integers(2, most + 1)) for n, most in largest.items()})

    def plan(self, names: Sequence[str]) -> None:
        """Compile a program for each plan, of samples of one structure."""
        for taken in self.samples.values():
            with suppress(NotPlanned):
                plan = OpenPlan(names, taken)
                plan.survey(self.surveys)
                self.programs.append(self._program(plan))
        self.samples.clear()
        self.surveys.clear()

    def read(self, graph: OpenGraph, row: Row) -> Network:
        """The network read anew at these sizes: by a plan that gives what was read, or else compiled."""
        program = None
        if self.programs and plannable(known := graph.at(row)):
            sample = self._sample(known, row, graph.free)
            program = next((p for p in self.programs if p.plan.serves(sample)), None)
        return self.model(graph, row, False) if program is None else program.at(row)

    def model(self, graph: OpenGraph, row: Row, named: bool) -> Model:
        """The model of a network at known sizes, which shares constants with those at other sizes."""
        read = final(graph.at(row), self.target, self.winograd, self.precision)
        known = None if named or self.general is None else partial(self.general.kernel, row=row)
        with recorded(self.records, self.measured) as records:
            return assembled(read, self.target, records, self.cache, self.measured, self.constants, self.donate, known)

    def save(self, model: OpenModel, path: Path, compiler: str | None) -> Path:
        return save_open(model, self.programs, self.target, path, compiler)

    def reduced(self, model: OpenModel) -> tuple[Any, ...]:
        """The model for pickle, as the bytes of its file."""
        with TemporaryDirectory() as folder:
            return restored, (model.save(Path(folder) / "model").read_bytes(),)

    def _sample(self, graph: Graph, row: Row, free: frozenset[str]) -> Sample:
        read = final(write_out_loops(graph), self.target, self.winograd, self.precision)
        found = donations(read, self.donate or {})
        return Sample.of(row, planned_graph(read, found), _sharing(fuse_in_place(read, found)), found, free)

    def _program(self, plan: OpenPlan) -> Program:
        """The program of a plan. Raises NotPlanned where a kernel cannot be made for open sizes."""
        assert self.general is not None
        sample, found = plan.largest, plan.largest.found
        fixed = [g.func for g, formulas in zip(sample.groups, plan.functions, strict=True) if all(map(is_constant, formulas))]
        by_func: dict[PrimFunc, GroupKernel] = {**compiled(fixed, self.target, self.general.records, self.cache)}
        kernels: list[GroupKernel] = []
        for group, numbers, formulas in zip(sample.groups, sample.numbers, plan.functions, strict=True):
            known = by_func.get(group.func) if all(map(is_constant, formulas)) else None
            kernel = known or self.general.learned(sample.row, group.func, numbers, formulas)
            if kernel is None:
                raise NotPlanned(f"no schedule of {group.func.name} for open sizes")
            kernels.append(kernel)
        groups, preparations = prepared(sample.graph, sample.groups, kernels)
        if any(plan.is_open(v) for p in preparations for v in p.read_and_made):
            raise NotPlanned("a constant that follows from sizes has a layout of its own")
        layout = planned_memory(sample.graph, groups, {d.output: d.input for d in found})
        graph, _ = filled(sample.graph, layout, preparations)
        graph, layout, blocks = self.constants.shared(graph, layout)
        plan.largest = sample.with_constants({}).without_calls()
        return Program(plan, groups, kernels, layout, graph.constants, blocks, self.target)


def _sharing(groups: Sequence[Group]) -> list[Group]:
    """The groups, with constants marked as those that kernels of all sizes read."""
    return [replace(g, func=with_shared_constants(g.func)) for g in groups]


def plannable(graph: Graph) -> bool:
    """True for a network of few steps in loops: plans have no loops, so they are written out."""
    steps = [loop.steps for loop in loops_of(graph)]
    return None not in steps and sum(filter(None, steps)) <= MAX_PLANNED_STEPS


def final(
    graph: Graph,
    target: Target,
    winograd: bool = True,
    precision: Precision | None = None,
    forms: Mapping[str, str] | None = None,
) -> Graph:
    """A graph after all passes, with minimal filtering where that is fastest, in a precision of 16 bits if that is given. `forms`
    are those of groups, by their keys, that were faster than the ones by default (see `alternatives`)."""
    passes = passes_for(target)
    graph = optimize(graph if precision is None else in_precision(graph, precision, passes), passes)
    return part(ordered(optimize(graph, last_passes(target, winograd, forms))), forms or {})


def formed(graph: Graph, target: Target, records: Records | None, forms: Mapping[str, str]) -> Model:
    """A network with its fastest recorded schedules, in the given forms."""
    return assembled(final(graph, target, forms=forms), target, records, users_cache())


def passes_for(target: Target) -> tuple[Pass, ...]:
    """All passes but the last ones: PASSES, after those that keep quantised numbers and weights integers."""

    def stay_integers(graph: Graph) -> Graph:
        return stay_quantised(graph, in_fewer_cycles(target), adds_pairs(target.machine))

    def stay_narrow(graph: Graph) -> Graph:
        return keep_weights_narrow(graph, *dot_lanes(target), vector_registers(target))

    return transpose_dequantised, stay_integers, stay_narrow, *PASSES


def last_passes(target: Target, winograd: bool = True, forms: Mapping[str, str] | None = None) -> tuple[Pass, ...]:
    """The passes after all others and after `in_precision`: channels last around convolutions of bfloat16, then minimal filtering
    of other convolutions.

    They are not in PASSES, whose order depends on no target: both read its cycles, and the types that `in_precision` has chosen.
    """

    def images_channels_last(graph: Graph) -> Graph:
        moved = convolve_channels_last(graph, in_fewer_cycles(target))
        return graph if moved is graph else optimize(moved)

    def fewer_multiplications(graph: Graph) -> Graph:
        return filter_minimally(graph, fastest(target, forms)) if winograd else graph

    return images_channels_last, fewer_multiplications


def assembled(
    graph: Graph,
    target: Target,
    records: Records | None,
    cache: ObjectCache | None,
    plan: Plan = "estimate",
    constants: Constants | None = None,
    donate: Mapping[str, str] | None = None,
    known: Callable[[PrimFunc], GroupKernel | None] | None = None,
) -> Model:
    """A graph after all passes as one native function, with shared `constants`; `known` gives kernels that exist already."""
    found = donations(graph, donate or {})
    if found and loops_of(graph):
        raise GraphError(f"{graph.name}: donate is not supported in networks with loops of {MIN_LOOPED_STEPS} or more steps")
    whole = graph
    groups = fuse_in_place(graph, found) if constants is None else _sharing(fuse_in_place(graph, found))
    graph = planned_graph(graph, found)
    given = {g.func: known(g.func) for g in groups} if known is not None else {}
    own = [func for func in (g.func for g in groups) if given.get(func) is None]
    if plan == "measure" and records is not None:
        measure(own, target, records)
    by_func = {func: kernel for func, kernel in given.items() if kernel is not None} | compiled(own, target, records, cache)
    kernels = [by_func[g.func] for g in groups]
    groups, preparations = prepared(graph, groups, kernels)
    layout = planned_memory(graph, groups, {d.output: d.input for d in found})
    graph, weights = filled(graph, layout, preparations)
    blocks = {WEIGHTS: weights}
    if constants is not None:
        graph, layout, blocks = constants.shared(graph, layout)
    return Model(
        whole.with_(constants=graph.constants),
        groups,
        kernels,
        layout,
        blocks,
        target,
        {d.output.name: d.input.name for d in found},
    )

"""Files that other tools write, made here by those that are installed, imported and compared with onnxruntime:

    python -m tests.graph.foreign_files [PART OF A NAME]

Exporters of torch, the optimiser and the quantisers of onnxruntime, and skl2onnx, each on small models. Prints for each file the
largest difference as a part of the root mean square, or the refusal, then the counts. The exit status is 1 if one is wrong.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import tir
from graph import GraphError

BOUND = 1e-4  # of the largest difference, of the root mean square of an output: some hundred roundings of float32
BOUND_OF_HALVES = 0.02  # the same in float16
BOUND_OF_QUANTA = 0.1  # the same where numbers are rounded to 8 bits or fewer: another rounding changes some by a whole quantum
Arrays = dict[str, np.ndarray]
LEVELS = ("BASIC", "EXTENDED", "ALL")


def main(part: str) -> int:
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, make in files(Path(folder)):
            if part not in name:
                continue
            verdict, why = judged(name, make)
            counts[verdict] += 1
            print(f"{verdict:12} {name:44} {why}", flush=True)
    print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))
    return counts["wrong"] > 0


def judged(name: str, make: Callable[[], tuple[Path, Arrays]]) -> tuple[str, str]:
    """The verdict on a file: right, wrong, refused, or not made, and the difference or the reason."""
    import onnxruntime

    try:
        path, inputs = make()
        plain = onnxruntime.SessionOptions()
        plain.log_severity_level = 4
        wanted = onnxruntime.InferenceSession(str(path), plain, providers=["CPUExecutionProvider"]).run(None, inputs)
    except Exception as error:  # the outermost frame: a tool that cannot make its file says nothing of the importer
        return "not made", f"{type(error).__name__}: {error}".replace("\n", " ")[:140]
    try:
        graph = tir.load_onnx(path, {n: a.shape for n, a in inputs.items()})
        found = tir.compile(graph, "llvm -num-cores 1", cache=None)(inputs)
    except GraphError as error:
        return "refused", str(error).replace("\n", " ")[-300:]
    off = max((difference(a, b) for a, b in zip(found, wanted, strict=True)), default=0.0)
    halves, quanta = "float16" in name, any(word in name for word in ("quant", "bits"))
    bound = BOUND_OF_QUANTA if quanta else BOUND_OF_HALVES if halves else BOUND
    return ("right" if off <= bound else "wrong"), f"{off:.1e}"


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference as a part of the root mean square; infinite for other shapes and types, and for one NaN of two."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    a, b = found.astype("float64"), wanted.astype("float64")
    if (np.isnan(a) != np.isnan(b)).any():
        return float("inf")
    same = (a == b) | np.isnan(a)
    scale = np.sqrt(np.mean(np.square(b[np.isfinite(b)]))) if np.isfinite(b).any() else 1.0
    return float(np.abs(a - b)[~same].max(initial=0.0) / max(scale, 1e-30))


def files(folder: Path) -> Iterator[tuple[str, Callable[[], tuple[Path, Arrays]]]]:
    """The names of files, and what makes each in a folder: its path, and inputs for it."""
    made: dict[str, tuple[Path, Arrays]] = {}

    def base(name: str) -> tuple[Path, Arrays]:
        known = made.get(f"{name}/script") or made.get(f"{name}/dynamo")
        return known or made.setdefault(f"{name}/dynamo", exported(folder, name, True))

    for name in MODELS:
        for dynamo in (False, True):
            own = f"{name}/{'dynamo' if dynamo else 'script'}"
            yield own, lambda own=own, name=name, dynamo=dynamo: made.setdefault(own, exported(folder, name, dynamo))
        for level in LEVELS:
            yield f"{name}/optimised {level}", lambda name=name, level=level: optimised(*base(name), level)
        for how in ("dynamic quantiser", "static quantiser QDQ", "static quantiser QOperator", "matmul 4 bits", "float16"):
            yield f"{name}/{how}", lambda name=name, how=how: rewritten(*base(name), how)
        yield (
            f"{name}/quantiser after optimiser",
            lambda name=name: rewritten(*optimised(*base(name), "EXTENDED"), "dynamic quantiser"),
        )
        for level in ("EXTENDED", "ALL"):
            yield (
                f"{name}/optimiser {level} after quantiser",
                lambda name=name, level=level: optimised(*rewritten(*base(name), "static quantiser QOperator"), level),
            )
    for name in LEARNERS:
        yield f"sklearn/{name}", lambda name=name: learned(folder, name)


# --- models of torch, and what onnxruntime makes of their files ------------------------------------------------------------


def _layers(kind: str):
    import torch
    from torch import nn

    torch.manual_seed(0)
    match kind:
        case "mlp":
            return nn.Sequential(nn.Linear(13, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 7)), (torch.randn(5, 13),)
        case "convolutions":
            block = [
                nn.Conv2d(3, 16, 3, 2, 1),
                nn.BatchNorm2d(16),
                nn.Hardswish(),
                nn.Conv2d(16, 16, 3, 1, 1, groups=16),
                nn.ReLU6(),
            ]
            head = [
                nn.Conv2d(16, 24, 1),
                nn.SiLU(),
                nn.MaxPool2d(3, 2, 1),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(24, 10),
            ]
            return nn.Sequential(*block, *head), (torch.randn(2, 3, 29, 23),)
        case "transformer":
            return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (torch.randn(2, 7, 32),)
        case "recurrent":

            class Last(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lstm, self.head = nn.LSTM(6, 16, batch_first=True, bidirectional=True), nn.Linear(32, 5)

                def forward(self, x):
                    return self.head(self.lstm(x)[0])

            return Last(), (torch.randn(2, 9, 6),)
        case "upsampling":
            parts = [nn.ConvTranspose2d(4, 8, 3, 2, 1), nn.InstanceNorm2d(8, affine=True), nn.PReLU(), nn.PixelShuffle(2)]
            return nn.Sequential(*parts, nn.Upsample(scale_factor=2.0, mode="bilinear"), nn.Tanh()), (torch.randn(1, 4, 7, 9),)
    from benchmarks.torch_models import Tensors

    transformers = __import__("transformers")
    small = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    model = transformers.BertModel(transformers.BertConfig(**small))
    return Tensors(model), (torch.randint(0, 100, (2, 11)), torch.ones(2, 11, dtype=torch.int64))


MODELS = ("mlp", "convolutions", "transformer", "recurrent", "upsampling", "bert")


def exported(folder: Path, name: str, dynamo: bool) -> tuple[Path, Arrays]:
    """A model of torch in a file, by the exporter that is built on torch.export, or by the older one."""
    import torch

    module, inputs = _layers(name)
    path = folder / f"{name}_{dynamo}.onnx"
    names = [f"x{n}" for n in range(len(inputs))]
    with torch.no_grad():
        torch.onnx.export(
            module.eval(),
            inputs,
            str(path),
            input_names=names,
            dynamo=dynamo,
            verbose=False,
            **({} if dynamo else {"opset_version": 17}),
        )
    return path, {n: x.numpy() for n, x in zip(names, inputs, strict=True)}


def optimised(path: Path, inputs: Arrays, level: str) -> tuple[Path, Arrays]:
    """The file that onnxruntime writes after its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(path.with_suffix(f".{level}.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Path(options.optimized_model_filepath), inputs


def rewritten(path: Path, inputs: Arrays, how: str) -> tuple[Path, Arrays]:
    """The file that one of onnxruntime's tools makes of another. Weights have 7 bits: without VNNI, onnxruntime adds two products
    by a byte in 16 bits, which saturate."""
    import onnx
    from onnxruntime import quantization

    made = path.with_suffix(f".{how.replace(' ', '_')}.onnx")
    if how == "dynamic quantiser":
        more = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # of results of operators of com.microsoft
        quantization.quantize_dynamic(path, made, reduce_range=True, extra_options=more)
    elif how.startswith("static"):

        class Samples(quantization.CalibrationDataReader):
            left = iter([inputs])

            def get_next(self):
                return next(self.left, None)

        kind = getattr(quantization.QuantFormat, how.split()[-1])
        quantization.quantize_static(path, made, Samples(), quant_format=kind, reduce_range=True)
    elif how == "matmul 4 bits":
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantiser = MatMulNBitsQuantizer(onnx.load(path), block_size=32, is_symmetric=True)
        quantiser.process()
        onnx.save(quantiser.model.model, made)
    else:
        from onnxruntime.transformers.float16 import convert_float_to_float16

        onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=True), made)
    return made, inputs


# --- models of scikit-learn ------------------------------------------------------------------------------------------------

LEARNERS = {
    "LinearRegression": "linear_model", "LogisticRegression": "linear_model", "Ridge": "linear_model", "SVC": "svm", "SVR": "svm",
    "DecisionTreeClassifier": "tree", "RandomForestClassifier": "ensemble", "RandomForestRegressor": "ensemble",
    "GradientBoostingClassifier": "ensemble", "GradientBoostingRegressor": "ensemble", "ExtraTreesRegressor": "ensemble",
    "HistGradientBoostingRegressor": "ensemble", "KMeans": "cluster", "PCA": "decomposition", "StandardScaler": "preprocessing",
    "MinMaxScaler": "preprocessing", "MLPClassifier": "neural_network", "KNeighborsRegressor": "neighbors", "GaussianNB": "naive_bayes",
}  # fmt: skip


def learned(folder: Path, name: str) -> tuple[Path, Arrays]:
    """A model of scikit-learn that was fitted to random data, in a file."""
    from importlib import import_module

    from skl2onnx import to_onnx

    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (120, 7)).astype("float32")
    labels = (x[:, 0] + x[:, 1] > 0).astype("int64") + (x[:, 2] > 0.3)
    learner = getattr(import_module(f"sklearn.{LEARNERS[name]}"), name)()
    learner.fit(
        x, labels if "Classifier" in name or name in ("LogisticRegression", "SVC", "GaussianNB") else x @ rng.uniform(-1, 1, 7)
    )
    path = folder / f"{name}.onnx"
    kept = {"zipmap": False} if hasattr(learner, "classes_") else {}
    path.write_bytes(to_onnx(learner, x[:1], options={id(learner): kept} if kept else None).SerializeToString())
    return path, {"X": x[:13]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))

"""A network in integers of 8 bits by onnxruntime's static quantiser: `python -m benchmarks.static_quantiser FILE OUTPUT`.

FILE is an export of `benchmarks.torch_networks`. The calibration is that of our own: the same samples.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from .network_contender import arrays_beside

SAMPLES = 8  # inputs to calibrate on: the one that is timed, and random ones of its distribution

Sample = dict[str, np.ndarray]


def samples(names: list[str], inputs: list[np.ndarray]) -> list[Sample]:
    """Inputs to calibrate on, by name: floats are drawn anew, with the mean and the deviation of those given."""
    rng = np.random.default_rng(0)

    def like(array: np.ndarray) -> np.ndarray:
        return rng.normal(array.mean(), array.std(), array.shape).astype(array.dtype) if array.dtype.kind == "f" else array

    return [dict(zip(names, inputs if n == 0 else map(like, inputs), strict=True)) for n in range(SAMPLES)]


def main(file: str, output: str) -> None:
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    model = onnx.load(file)
    names = [i.name for i in model.graph.input]
    given = iter(samples(names, arrays_beside(Path(file))[0]))

    class Reader(CalibrationDataReader):
        def get_next(self) -> Sample | None:
            return next(given, None)

    with tempfile.TemporaryDirectory() as folder:
        whole, prepared = Path(folder) / "whole.onnx", Path(folder) / "prepared.onnx"
        onnx.save(model, whole)  # with its weights, which onnxruntime does not find elsewhere
        quant_pre_process(whole, prepared, skip_symbolic_shape=True, save_as_external_data=False)
        quantize_static(
            prepared, output, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
